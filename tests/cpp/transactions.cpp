// Transactions and snapshots.
#include <stdexcept>

#include "check.hpp"

SCENARIO(a_transaction_commits_over_all_families) {
    kvstore::store db(":memory:");
    kvstore::family cf = db.create_family("family");
    auto tx = db.begin();
    CHECK(tx.is_open());
    db.put("key", "1");
    cf.put("key", "2");
    CHECK(db.get("key") == "1");
    tx.commit();
    CHECK(!tx.is_open());
    CHECK(db.get("key") == "1" && cf.get("key") == "2");
}

SCENARIO(a_transaction_that_is_not_committed_is_rolled_back) {
    kvstore::store db(":memory:");
    {
        auto tx = db.begin();
        db.put("key", "1");
    }
    CHECK(!db.exists("key"));
    auto tx = db.begin();
    db.put("key", "2");
    tx.rollback();
    CHECK(!db.exists("key"));
    THROWS(misuse, tx.commit());
    THROWS(misuse, tx.rollback());
    tx = db.begin();
    db.put("key", "3");
    tx = kvstore::transaction(std::move(tx));
    CHECK(tx.is_open());
    tx.commit();
    CHECK(db.get("key") == "3");
}

SCENARIO(a_second_begin_is_refused_and_the_first_goes_on) {
    kvstore::store db(":memory:");
    auto tx = db.begin();
    THROWS(error, db.begin());
    THROWS(error, db.snapshot());
    db.put("key", "value");
    tx.commit();
    CHECK(db.exists("key"));
}

SCENARIO(a_function_in_a_transaction_commits_or_its_exception_rolls_back) {
    kvstore::store db(":memory:");
    db.transaction([&] { db.put("a", "1"); });
    CHECK(db.get("a") == "1");
    const int answer = db.transaction([&] {
        db.put("a", "2");
        return 42;
    });
    CHECK(answer == 42 && db.get("a") == "2");
    CHECK(db.transaction([&] { return std::make_unique<int>(7); }) != nullptr);
    int target = 1;
    int& same = db.transaction([&]() -> int& { return target; });
    CHECK(&same == &target);
    bool caught = false;
    try {
        db.transaction([&] {
            db.put("a", "3");
            throw std::logic_error("enough");
        });
    } catch (const std::logic_error& e) {
        caught = std::string_view(e.what()) == "enough";
    }
    CHECK(caught && db.get("a") == "2");
    THROWS(error, db.transaction([&] { db.put("", "bad"); }));
    db.begin().commit(); // none is left open
}

SCENARIO(a_snapshot_sees_one_moment_and_writes_nothing) {
    kvstore::store db("snapshot.db");
    kvstore::store other("snapshot.db");
    db.put("key", "1");
    {
        auto snapshot = db.snapshot();
        CHECK(db.get("key") == "1");
        other.put("key", "2");
        CHECK(db.get("key") == "1" && snapshot.is_open());
        THROWS(readonly, db.put("key", "3"));
    }
    CHECK(db.get("key") == "2");
    auto snapshot = db.snapshot();
    snapshot.end();
    THROWS(misuse, snapshot.end());
    db.put("key", "3");
}

SCENARIO(another_writer_is_told_to_retry) {
    kvstore::store db("busy.db");
    kvstore::store other("busy.db");
    auto tx = db.begin();
    db.put("key", "1");
    try {
        other.put("key", "2");
        CHECK(false);
    } catch (const kvstore::error& e) {
        CHECK(e.code() == kvstore::errc::busy && e.retryable());
    }
    tx.commit();
    other.put("key", "2");
    CHECK(db.get("key") == "2");
}

SCENARIO(closing_rolls_back_and_leaves_a_harmless_transaction) {
    kvstore::store db("closing.db");
    auto tx = db.begin();
    db.put("key", "value");
    db.close();
    CHECK(!tx.is_open());
    THROWS(misuse, tx.commit());
    CHECK(!kvstore::store("closing.db").exists("key"));
}
