//! Compares a store on a PostgreSQL server with plain SQL through the crate `postgres`, and with
//! Redis: kvstore-bench-remote POSTGRES_FOLDER REDIS_SOCKET [ROUNDS]. All three use Unix sockets of
//! this machine and are measured in turns. Results are medians of the rounds. The SQL is a typical
//! hand-written solution: a table (key, value, expire_ms) with an index on expire_ms, and prepared
//! statements.

use std::time::{Duration, Instant};

use kvstore::{Config, Expiry, Store};
use postgres::{Client, NoTls, Statement};
use redis::Commands as _;

const KEYS: usize = 20_000;
const VALUE: [u8; 100] = [118; 100];

fn key(n: usize) -> String {
    format!("key{n:09}")
}

/// Returns nanoseconds per call over `calls` calls.
fn each(calls: usize, mut f: impl FnMut(usize)) -> f64 {
    let begun = Instant::now();
    (0..calls).for_each(&mut f);
    begun.elapsed().as_nanos() as f64 / calls as f64
}

/// A number that looks random, below KEYS.
fn scattered(n: usize) -> usize {
    n.wrapping_mul(2_654_435_761) % KEYS
}

struct Sql {
    client: Client,
    get: Statement,
    put: Statement,
    many: Statement,
    get_many: Statement,
    scan: Statement,
}

impl Sql {
    fn open(folder: &str) -> Sql {
        let mut client = Client::connect(&format!("host={folder} user=postgres dbname=postgres"), NoTls).unwrap();
        client
            .batch_execute(
                "DROP TABLE IF EXISTS bare; CREATE TABLE bare (key bytea PRIMARY KEY, value bytea NOT NULL, expire_ms bigint); \
                 CREATE INDEX ON bare (expire_ms) WHERE expire_ms IS NOT NULL",
            )
            .unwrap();
        let mut text = |sql: &str| client.prepare(sql).unwrap();
        let put = "INSERT INTO bare (key, value, expire_ms) VALUES ($1, $2, $3) \
             ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, expire_ms = EXCLUDED.expire_ms";
        let alive = "(expire_ms IS NULL OR expire_ms > (floor(extract(epoch FROM now()) * 1000))::bigint)";
        Sql {
            get: text(&format!("SELECT value, expire_ms FROM bare WHERE key = $1 AND {alive}")),
            put: text(put),
            many: text(
                "INSERT INTO bare (key, value) SELECT * FROM unnest($1::bytea[], $2::bytea[]) \
                 ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value",
            ),
            get_many: text(&format!("SELECT key, value FROM bare WHERE key = ANY ($1::bytea[]) AND {alive}")),
            scan: text(&format!("SELECT key, value, expire_ms FROM bare WHERE key > $1 AND {alive} ORDER BY key LIMIT 512")),
            client,
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (folder, socket) = (&arguments[1], &arguments[2]);
    let rounds: usize = arguments.get(3).map_or(5, |rounds| rounds.parse().unwrap());
    let url = format!("postgresql://postgres@/postgres?host={folder}&schema=bench");
    let store = Store::open_with(&url, &Config::new()).unwrap();
    let mut sql = Sql::open(folder);
    let mut redis = redis::Client::open(format!("redis+unix://{socket}")).unwrap().get_connection().unwrap();

    let mut found: Vec<(&str, &str, Vec<f64>)> = Vec::new();
    let mut note = |what: &'static str, who: &'static str, ns: f64| {
        match found.iter_mut().find(|(a, b, _)| (*a, *b) == (what, who)) {
            Some((.., all)) => all.push(ns),
            None => found.push((what, who, vec![ns])),
        }
    };
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let thousand = |from: usize| (0..1000).map(move |n| (from + n) % KEYS);
    let no_end: Option<i64> = None;
    // Creates and fills all tables once.
    for n in (0..KEYS).step_by(1000) {
        let mut batch = store.batch();
        thousand(n).for_each(|n| batch.put(store.default_family(), &keys[n], VALUE, Expiry::Never).unwrap());
        batch.commit().unwrap();
        let (names, values): (Vec<&[u8]>, Vec<&[u8]>) = thousand(n).map(|n| (keys[n].as_bytes(), &VALUE[..])).unzip();
        sql.client.execute(&sql.many, &[&names, &values]).unwrap();
        thousand(n).for_each(|n| redis.set::<_, _, ()>(&keys[n], &VALUE[..]).unwrap());
    }
    sql.client.batch_execute("VACUUM ANALYZE").unwrap();
    for _ in 0..rounds {
        note("get", "kvstore", each(4000, |n| drop(store.get(&keys[scattered(n)]).unwrap().unwrap())));
        note("get", "bare SQL", each(4000, |n| {
            let row = sql.client.query_one(&sql.get, &[&keys[scattered(n)].as_bytes()]).unwrap();
            let _: Vec<u8> = row.get(0);
        }));
        note("get", "Redis", each(4000, |n| {
            let _: Vec<u8> = redis.get(&keys[scattered(n)]).unwrap();
        }));
        note("put", "kvstore", each(1000, |n| store.put(&keys[scattered(n)], VALUE).unwrap()));
        note("put", "bare SQL", each(1000, |n| {
            let key = keys[scattered(n)].as_bytes();
            sql.client.execute(&sql.put, &[&key, &&VALUE[..], &no_end]).unwrap();
        }));
        note("put", "Redis", each(1000, |n| redis.set::<_, _, ()>(&keys[scattered(n)], &VALUE[..]).unwrap()));
        note("put_ttl", "kvstore", each(1000, |n| {
            store.put_with_ttl(&keys[scattered(n)], VALUE, Duration::from_secs(3600)).unwrap();
        }));
        note("put_ttl", "bare SQL", each(1000, |n| {
            let key = keys[scattered(n)].as_bytes();
            sql.client.execute(&sql.put, &[&key, &&VALUE[..], &Some(kvstore::now_ms() + 3_600_000)]).unwrap();
        }));
        note("put_ttl", "Redis", each(1000, |n| redis.set_ex::<_, _, ()>(&keys[scattered(n)], &VALUE[..], 3600).unwrap()));
        note("put 1000 at once", "kvstore", each(10, |round| {
            let mut batch = store.batch();
            thousand(round * 997).for_each(|n| batch.put(store.default_family(), &keys[n], VALUE, Expiry::Never).unwrap());
            batch.commit().unwrap();
        }));
        note("put 1000 at once", "bare SQL", each(10, |round| {
            let (names, values): (Vec<&[u8]>, Vec<&[u8]>) =
                thousand(round * 997).map(|n| (keys[n].as_bytes(), &VALUE[..])).unzip();
            sql.client.execute(&sql.many, &[&names, &values]).unwrap();
        }));
        note("put 1000 at once", "Redis", each(10, |round| {
            let pairs: Vec<_> = thousand(round * 997).map(|n| (&keys[n], &VALUE[..])).collect();
            redis.mset::<_, _, ()>(&pairs).unwrap()
        }));
        note("get 1000 at once", "kvstore", each(20, |round| {
            let found = store.get_many(thousand(round * 991).map(|n| &keys[n])).unwrap();
            assert!(found.iter().all(Option::is_some));
        }));
        note("get 1000 at once", "bare SQL", each(20, |round| {
            let names: Vec<&[u8]> = thousand(round * 991).map(|n| keys[n].as_bytes()).collect();
            assert_eq!(sql.client.query(&sql.get_many, &[&names]).unwrap().len(), 1000);
        }));
        note("get 1000 at once", "Redis", each(20, |round| {
            let names: Vec<_> = thousand(round * 991).map(|n| &keys[n]).collect();
            let found: Vec<Vec<u8>> = redis.mget(&names).unwrap();
            assert_eq!(found.len(), 1000);
        }));
        note("scan, a row", "kvstore", each(1, |_| assert_eq!(store.iter().map(Result::unwrap).count(), KEYS)) / KEYS as f64);
        note("scan, a row", "bare SQL", each(1, |_| {
            let (mut after, mut rows): (Vec<u8>, usize) = (Vec::new(), 0);
            loop {
                let chunk = sql.client.query(&sql.scan, &[&after]).unwrap();
                let Some(last) = chunk.last() else { break };
                after = last.get(0);
                rows += chunk.len();
            }
            assert_eq!(rows, KEYS);
        }) / KEYS as f64);
    }
    // Runs the given number of handles for two seconds, each in a thread. Returns nanoseconds per
    // call of one handle.
    let together = |handles: usize, puts: bool| {
        let begun = Instant::now();
        let done: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..handles)
                .map(|thread| {
                    let (url, keys) = (&url, &keys);
                    scope.spawn(move || {
                        let store = Store::open(url).unwrap();
                        let mut done = 0;
                        while begun.elapsed() < Duration::from_secs(2) {
                            let key = &keys[scattered(thread * 7919 + done)];
                            if puts {
                                store.put(key, VALUE).unwrap();
                            } else {
                                store.get(key).unwrap().unwrap();
                            }
                            done += 1;
                        }
                        done
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        done as f64 / 2.0
    };
    let handles = [false, true].map(|puts| (together(1, puts), together(16, puts)));

    println!("| | kvstore | bare SQL | | Redis |\n|---|--:|--:|--:|--:|");
    let median = |what: &str, who: &str| {
        let mut all = found.iter().find(|(a, b, _)| (*a, *b) == (what, who))?.2.clone();
        all.sort_by(f64::total_cmp);
        Some(all[all.len() / 2])
    };
    for what in ["get", "put", "put_ttl", "put 1000 at once", "get 1000 at once", "scan, a row"] {
        let (ours, bare) = (median(what, "kvstore").unwrap(), median(what, "bare SQL").unwrap());
        let shown = |ns: f64| if ns < 10_000.0 { format!("{:.2} µs", ns / 1e3) } else { format!("{:.1} µs", ns / 1e3) };
        let redis = median(what, "Redis").map(shown).unwrap_or_default();
        println!("| {what} | {} | {} | {:.2} × | {redis} |", shown(ours), shown(bare), ours / bare);
    }
    println!();
    for (what, (one, sixteen)) in ["Gets", "Puts"].into_iter().zip(handles) {
        println!("{what} a second: one handle {one:.0}, 16 handles {sixteen:.0} ({:.1} ×).", sixteen / one);
    }
}
