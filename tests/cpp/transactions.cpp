// Transactions and snapshots.
#include <stdexcept>

#include "check.hpp"

SCENARIO(transaction_commits_over_all_families) {
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

SCENARIO(transaction_without_commit_is_rolled_back) {
    kvstore::store db(":memory:");
    {
        auto tx = db.begin();
        db.put("key", "1");
    }
    CHECK(!db.contains("key"));
    auto tx = db.begin();
    db.put("key", "2");
    tx.rollback();
    CHECK(!db.contains("key"));
    THROWS(misuse, tx.commit());
    THROWS(misuse, tx.rollback());
    tx = db.begin();
    db.put("key", "3");
    tx = kvstore::transaction(std::move(tx));
    CHECK(tx.is_open());
    tx.commit();
    CHECK(db.get("key") == "3");
}

SCENARIO(second_begin_fails_and_first_continues) {
    kvstore::store db(":memory:");
    auto tx = db.begin();
    THROWS(error, db.begin());
    THROWS(error, db.snapshot());
    db.put("key", "value");
    tx.commit();
    CHECK(db.contains("key"));
}

SCENARIO(transaction_function_commits_or_rolls_back_on_exception) {
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

SCENARIO(nested_transaction_fails_and_outer_continues) {
    kvstore::store db(":memory:");
    const int answer = db.transaction([&] {
        db.put("outer", "1");
        bool ran = false;
        THROWS(error, db.transaction([&] { ran = true; }));
        THROWS(error, db.snapshot());
        CHECK(!ran && db.get("outer") == "1");
        return 7;
    });
    CHECK(answer == 7 && db.get("outer") == "1");
    THROWS(error, db.transaction([&] {
        db.put("outer", "2");
        db.transaction([&] { db.put("inner", "2"); });
    }));
    CHECK(db.get("outer") == "1" && !db.contains("inner"));
}

SCENARIO(transaction_function_that_ends_it_gets_misuse) {
    kvstore::store db("ends.db");
    THROWS(misuse, db.transaction([&] {
        db.put("key", "closed");
        db.close();
    }));
    db = kvstore::store("ends.db");
    CHECK(!db.contains("key"));
    std::vector<kvstore::store> kept;
    db.transaction([&] { // the transaction belongs to the store, also after a move
        db.put("key", "moved");
        kept.push_back(std::move(db));
    });
    CHECK(kept[0].get("key") == "moved");
    THROWS(misuse, db.transaction([] {}));
    bool caught = false;
    try {
        kept[0].transaction([&]() -> int {
            kept[0].put("key", "thrown");
            kept[0].close();
            throw 42;
        });
    } catch (int thrown) {
        caught = thrown == 42;
    }
    CHECK(caught && kvstore::store("ends.db").get("key") == "moved");
}

SCENARIO(failed_commit_rolls_back_and_store_stays_usable) {
    kvstore::config config;
    config.journal = kvstore::journal_mode::rollback;
    kvstore::store db("refused.db", config);
    kvstore::store other("refused.db", config);
    db.put("key", "1");
    {
        auto snapshot = other.snapshot();
        CHECK(other.get("key") == "1");
        THROWS(busy, db.transaction([&] {
            db.put("key", "2");
            return 1;
        }));
    }
    CHECK(db.get("key") == "1");
    CHECK(db.transaction([&] { return db.increment("key", 2); }) == 3);
    CHECK(other.get("key") == "3");
}

SCENARIO(snapshot_is_stable_and_rejects_writes) {
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

SCENARIO(second_writer_gets_retryable_busy) {
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

SCENARIO(close_rolls_back_and_transaction_stays_safe) {
    kvstore::store db("closing.db");
    auto tx = db.begin();
    db.put("key", "value");
    db.close();
    CHECK(!tx.is_open());
    THROWS(misuse, tx.commit());
    CHECK(!kvstore::store("closing.db").contains("key"));
}
