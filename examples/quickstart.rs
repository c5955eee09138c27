use std::time::Duration;

fn main() -> kvstore::Result<()> {
    let db = kvstore::Store::open("quickstart.db")?;
    db.put("user:1", "Ada")?;
    db.put_with_ttl("user:2", "Bob", Duration::from_secs(60))?;
    if let Some(name) = db.get("user:1")? {
        println!("user:1 is {}", String::from_utf8_lossy(&name));
    }
    for entry in db.prefix("user:") {
        let (key, value) = entry?;
        println!("{} = {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }
    Ok(())
}
