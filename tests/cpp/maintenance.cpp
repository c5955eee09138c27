// Statistics, checks, checkpoints, backup, the cleaner.
#include <fstream>
#include <iterator>

#include "check.hpp"

using namespace std::chrono_literals;

SCENARIO(stats_count_calls) {
    kvstore::store db(":memory:");
    db.put("key", "value");
    (void)db.get("key");
    db.erase("key");
    (void)db.get("key");
    (void)db.contains("key");
    (void)db.items();
    THROWS(error, db.put("", ""));
    const kvstore::stats s = db.stats();
    CHECK(s.puts == 1 && s.gets == 1 && s.erases == 1 && s.iterations == 1 && s.errors == 1);
    CHECK(s.misses == 2);
    CHECK(s.bytes_read == 5 && s.bytes_written == 8 && s.wal_commits == 2 && s.db_pages > 0);
    db.reset_stats();
    CHECK(db.stats().puts == 0);
}

SCENARIO(store_is_synced_checkpointed_vacuumed_and_checked) {
    kvstore::store db("maintained.db");
    for (int i = 0; i < 200; i++) {
        db.put(std::to_string(i), std::string(1000, 'x'));
    }
    db.sync();
    db.clear();
    db.incremental_vacuum(10);
    db.incremental_vacuum();
    CHECK(db.checkpoint().wal_frames > 0);
    CHECK(db.checkpoint(kvstore::checkpoint_mode::full).wal_frames >= 0);
    CHECK(db.checkpoint(kvstore::checkpoint_mode::restart).wal_frames >= 0);
    CHECK(db.checkpoint(kvstore::checkpoint_mode::truncate).wal_frames == 0);
    db.integrity_check();
    CHECK(db.repair() == 0);
    THROWS(error, db.incremental_vacuum(-1));
    auto tx = db.begin();
    THROWS(busy, db.checkpoint());
}

SCENARIO(small_profile_keeps_the_wal_short) {
    kvstore::config config;
    config.small = true;
    kvstore::store db("small.db", config);
    std::uint64_t longest = 0;
    for (int n = 0; n < 400; n++) {
        db.put(std::to_string(n % 50), std::string(2000, static_cast<char>(n)));
        longest = std::max(longest, db.stats().wal_frames);
    }
    CHECK(longest >= 32 && longest <= 128);
}

SCENARIO(secure_delete_overwrites_deleted_data) {
    const auto has = [](const char* name) {
        std::ifstream file(name, std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(file), {}};
        return bytes.find("Sentinel") != std::string::npos;
    };
    for (const bool secure : {false, true}) {
        kvstore::config config;
        config.secure_delete = secure;
        kvstore::store db(secure ? "secure.db" : "left.db", config);
        db.put("Sentinel", "Sentinel");
        (void)db.checkpoint();
        CHECK(has(secure ? "secure.db" : "left.db"));
        db.erase("Sentinel");
        (void)db.checkpoint();
        CHECK((has("secure.db") || has("secure.db-wal")) == false);
    }
    CHECK(has("left.db"));
}

SCENARIO(store_with_limit_evicts_or_throws_full) {
    kvstore::store db("bounded.db");
    CHECK(db.limit().max_bytes == 0 && db.limit().policy == kvstore::eviction::none);
    THROWS(error, db.set_limit(1000));
    THROWS(error, db.set_limit(-1));
    db.set_limit(256 << 10, kvstore::eviction::least_used);
    for (int i = 0; i < 1000; i++) {
        db.put(std::to_string(i), std::string(1000, 'x'));
    }
    const kvstore::stats s = db.stats();
    CHECK(s.evicted > 0 && s.size_bytes <= 256 << 10);
    CHECK(db.count() == 1000 - s.evicted && !db.get("0") && db.get("999"));
    db.set_limit(256 << 10);
    CHECK(kvstore::store("bounded.db").limit().max_bytes == 256 << 10);
    THROWS(full, [&] {
        for (int i = 1000; i < 2000; i++) {
            db.put(std::to_string(i), std::string(1000, 'x'));
        }
    }());
    db.set_limit(0);
    db.put("1", "more");
    kvstore::store other(":memory:");
    other.set_limit(kvstore::store("bounded.db").limit());
    CHECK(other.limit().max_bytes == 0);
    other.set_limit({256 << 10, kvstore::eviction::soonest});
    db.set_limit(other.limit());
    CHECK(db.limit().max_bytes == 256 << 10 && db.limit().policy == kvstore::eviction::soonest);
}

SCENARIO(integrity_check_names_first_inconsistency) {
    kvstore::config config;
    config.journal = kvstore::journal_mode::rollback;
    config.mmap_size = 0;
    std::string marker(2000, 'm');
    {
        kvstore::store db("damaged.db", config);
        for (int i = 0; i < 100; i++) {
            db.put(std::to_string(i), marker);
        }
    }
    {
        std::fstream file("damaged.db", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-40000, std::ios::end);
        for (int i = 0; i < 20000; i++) {
            file.put('\x5a');
        }
    }
    kvstore::store db("damaged.db", config);
    THROWS(corrupt, db.integrity_check());
    THROWS(corrupt, db.repair());
}

SCENARIO(backup_is_a_store_with_all_expiry_times) {
    check::clock time;
    kvstore::store db("original.db");
    db.set_clock(time);
    db.put("key", "value", 5s);
    db.backup("copy.db");
    int calls = 0;
    int last = -1;
    CHECK(db.backup("watched.db", [&](int remaining, int total) {
        CHECK(remaining <= total);
        calls++;
        last = remaining;
    }));
    CHECK(calls > 0 && last == 0);
    CHECK(db.backup("asked.db", [](int, int) { return true; }));
    for (const char* name : {"copy.db", "watched.db", "asked.db"}) {
        kvstore::store copy(name);
        copy.set_clock(time);
        CHECK(copy.get_with_ttl("key")->ttl.duration() == 5s);
    }
    THROWS(error, db.backup("copy.db"));
    THROWS(error, db.backup("copy.db", [](int, int) { return true; }));
    THROWS(error, db.backup(std::string("a\0b", 3)));
}

SCENARIO(backup_is_cancelled_by_false) {
    kvstore::store db("stopped.db");
    db.put("key", "value");
    CHECK(!db.backup("part.db", [](int, int) { return false; }));
    CHECK(!std::ifstream("part.db"));
}

SCENARIO(copy_has_all_expiry_times) {
    check::clock time;
    kvstore::store from("from.db");
    from.set_clock(time);
    from.put("key", "value", 5s);
    (void)from.create_family("f");
    kvstore::store to("to.db");
    to.set_clock(time);
    CHECK(!from.copy_to(to, [](std::int64_t, std::int64_t) { return false; }));
    bool caught = false;
    try {
        from.copy_to(to, [](std::int64_t, std::int64_t) -> bool { throw std::logic_error("enough"); });
    } catch (const std::logic_error&) {
        caught = true;
    }
    CHECK(caught && to.count() == 0);
    std::int64_t last = -1;
    CHECK(from.copy_to(to, [&](std::int64_t done, std::int64_t total) {
        CHECK(done <= total);
        last = done;
    }));
    CHECK(last == 1 && to.get_with_ttl("key")->ttl.duration() == 5s);
    (void)to.family("f");
    THROWS(error, from.copy_to(to)); // it has keys
    THROWS(error, from.copy_to(from));
    kvstore::store memory(":memory:");
    memory.set_clock(time);
    to.copy_to(memory);
    CHECK(memory.get("key") == "value");
}

SCENARIO(cleaner_starts_and_stops) {
    kvstore::store db("cleaned.db");
    db.start_cleaner(1h, 100);
    THROWS(error, db.start_cleaner(1h));
    db.stop_cleaner();
    db.stop_cleaner();
    db.start_cleaner(1us);
    THROWS(error, kvstore::store(":memory:").start_cleaner(1h));
    db.stop_cleaner();
    THROWS(error, db.start_cleaner(0s));
}

SCENARIO(recover_saves_readable_rows_of_damaged_file) {
    {
        kvstore::store db("to_recover.db");
        db.transaction([&] {
            for (int i = 0; i < 3000; i++) {
                db.put(std::to_string(i), std::string(60, 'x'));
            }
        });
    }
    CHECK(kvstore::recover("to_recover.db", "recovered_whole.db").saved == 3000);
    {
        std::fstream file("to_recover.db", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(20 * 4096);
        file << std::string(4096, '\0');
    }
    std::uint64_t lines = 0;
    const kvstore::recover_report done = kvstore::recover(
        "to_recover.db", "recovered.db",
        [&](const char* text, std::int64_t read, std::int64_t total) { lines += text && read <= total ? 1 : 0; });
    CHECK(done.lost > 0 && done.lost == lines && done.saved > 2800 && done.saved <= 3000);
    CHECK(kvstore::store("recovered.db").count() == done.saved);
    struct enough {};
    bool thrown = false;
    try {
        kvstore::recover("to_recover.db", "recovered_third.db",
                         [](const char*, std::int64_t, std::int64_t) { throw enough(); });
    } catch (const enough&) {
        thrown = true;
    }
    CHECK(thrown && !std::ifstream("recovered_third.db"));
    THROWS(error, kvstore::recover("to_recover.db", "recovered.db"));
    THROWS(cantopen, kvstore::recover("no such.db", "recovered_third.db"));
}
