// Callbacks: exceptions they throw, and calls they make to their store. No exception crosses C.
#include <fstream>
#include <stdexcept>

#include "check.hpp"

using namespace std::chrono_literals;

SCENARIO(backup_cancelled_by_exception_of_progress_rethrows_it) {
    kvstore::store db("throwing.db");
    db.put("key", "value");
    bool caught = false;
    try {
        db.backup("part.db", [](int, int) -> bool { throw std::logic_error("enough"); });
    } catch (const std::logic_error& e) {
        caught = std::string_view(e.what()) == "enough";
    }
    CHECK(caught && !std::ifstream("part.db"));
    db.put("key", "other"); // the store remains usable
    db.backup("whole.db");
}

SCENARIO(wait_hook_ends_the_wait_for_a_lock) {
    static int calls;
    kvstore::set_wait_hook([]() noexcept { return ++calls >= 2; });
    kvstore::config patient;
    patient.busy_timeout = 20s;
    kvstore::store db("waits.db", patient), other("waits.db");
    kvstore::transaction holder = other.begin();
    other.put("key", "other");
    CHECK(db.try_put("key", "value").error().code() == kvstore::errc::busy && calls == 2);
    holder.commit();
    db.put("key", "value");
    CHECK(calls == 2);
    kvstore::set_wait_hook(nullptr);
}

SCENARIO(clock_that_throws_keeps_its_last_time) {
    kvstore::store db(":memory:");
    auto broken = std::make_shared<bool>(false);
    auto ms = std::make_shared<std::int64_t>(5000);
    db.set_clock([=] {
        if (*broken) {
            throw std::runtime_error("no clock");
        }
        return kvstore::time_point(std::chrono::milliseconds(*ms));
    });
    db.put("key", "value", 10s);
    *broken = true;
    *ms = 100000;
    CHECK(db.now().time_since_epoch() == 5s);
    CHECK(db.get("key") == "value");
    CHECK(db.ttl("key")->duration() == 10s);
    *broken = false;
    CHECK(!db.get("key"));
    CHECK(db.now().time_since_epoch() == 100s);
    *ms = 7; // earlier than before: ignored
    CHECK(db.now().time_since_epoch() == 100s);
}

SCENARIO(clock_that_throws_when_set_is_rejected) {
    check::timed_store s;
    bool caught = false;
    try {
        s.db.set_clock([]() -> kvstore::time_point { throw std::logic_error("no clock"); });
    } catch (const std::logic_error&) {
        caught = true;
    }
    CHECK(caught && s.db.now() == s.time());
}

SCENARIO(clock_is_kept_while_a_thread_may_call_it) {
    const auto life = std::make_shared<int>(0);
    {
        std::unique_ptr<kvstore::family> cf;
        {
            kvstore::store db(":memory:");
            db.set_clock([life] { return kvstore::time_point(1s); });
            db.set_clock([life] { return kvstore::time_point(2s); });
            CHECK(db.now().time_since_epoch() == 2s);
            cf = std::make_unique<kvstore::family>(db.create_family("family"));
        }
        CHECK(life.use_count() == 3);
        THROWS(misuse, cf->put("key", "value", 1s));
    }
    CHECK(life.use_count() == 1);
}

SCENARIO(callback_that_calls_its_store_gets_misuse) {
    kvstore::store db(":memory:");
    db.put("key", "value");
    THROWS(misuse, db.backup("copy.db", [&](int, int) { (void)db.get("key"); }));
    THROWS(misuse, db.backup("copy.db", [&](int, int) { db.close(); }));
    CHECK(db.get("key") == "value"); // closing was refused
    db.close();
}
