// Batches.
#include "check.hpp"

using namespace std::chrono_literals;

SCENARIO(batch_commits_atomically_and_is_reusable) {
    check::timed_store s;
    kvstore::family cf = s.db.create_family("family");
    s.db.put("gone", "value");
    cf.put("gone", "value");
    kvstore::batch batch = s.db.batch();
    batch.put("a", "1");
    batch.put("b", "2", 5s);
    batch.put(cf, "c", "3");
    batch.put(cf, "d", "4", s.time() + 6s);
    batch.erase("gone");
    batch.erase(cf, "gone");
    batch.erase("missing");
    CHECK(batch.count() == 7);
    CHECK(!s.db.contains("a") && s.db.contains("gone"));
    batch.commit();
    CHECK(batch.count() == 0);
    CHECK(s.db.get("a") == "1" && s.db.ttl("a")->never_expires());
    CHECK(s.db.ttl("b")->duration() == 5s);
    CHECK(cf.get("c") == "3" && cf.ttl("d")->duration() == 6s);
    CHECK(!s.db.contains("gone") && !cf.contains("gone"));
    batch.put("e", "5");
    batch.clear();
    CHECK(batch.count() == 0);
    batch.commit();
    CHECK(!s.db.contains("e"));
}

SCENARIO(failed_batch_keeps_its_writes) {
    kvstore::store db(":memory:");
    kvstore::batch batch = db.batch();
    {
        kvstore::family cf = db.create_family("family");
        batch.put(cf, "key", "value");
    }
    batch.put("key", "value");
    db.drop_family("family");
    THROWS(error, batch.commit());
    CHECK(batch.count() == 2 && !db.contains("key"));
}

SCENARIO(batch_rejects_bad_keys_and_foreign_families) {
    kvstore::store db(":memory:");
    kvstore::store other(":memory:");
    kvstore::family foreign = other.create_family("family");
    kvstore::batch batch = db.batch();
    THROWS(error, batch.put("", "value"));
    THROWS(error, batch.erase(""));
    THROWS(error, batch.put(foreign, "key", "value"));
    kvstore::family taken = std::move(foreign);
    THROWS(misuse, batch.put(foreign, "key", "value"));
    THROWS(misuse, batch.erase(foreign, "key"));
    CHECK(batch.count() == 0);
    db.close();
    THROWS(misuse, batch.put("key", "value"));
    THROWS(misuse, batch.commit());
}
