import kvstore

with kvstore.open("quickstart.db") as db:
    db["user:1"] = "Ada"
    db.put("user:2", "Bob", ttl=60)
    print("user:1 is", db["user:1"].decode())
    for key, value in db.items(prefix="user:"):
        print(key.decode(), "=", value.decode())
