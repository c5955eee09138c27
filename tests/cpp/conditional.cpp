// Conditional writes, and changes of the expiry time.
#include "check.hpp"

using namespace std::chrono_literals;
using kvstore::expire_result;
using kvstore::expire_if;
using kvstore::put_options;

SCENARIO(put_if_absent_writes_only_missing_and_expired_keys) {
    check::timed_store s;
    kvstore::family cf = s.db.create_family("family");
    CHECK(s.db.put_if_absent("key", "1", 5s));
    CHECK(!s.db.put_if_absent("key", "2"));
    CHECK(s.db.get("key") == "1");
    s.time.advance(5s);
    CHECK(s.db.put_if_absent("key", "3"));
    CHECK(s.db.ttl("key")->never_expires());
    CHECK(cf.put_if_absent("key", "1") && !cf.put_if_absent("key", "2"));
}

SCENARIO(put_with_obeys_each_option) {
    check::timed_store s;
    CHECK(!s.db.put_with("key", "1", put_options().if_present()));
    CHECK(s.db.put_with("key", "1", put_options().if_absent().expires(9s)));
    CHECK(!s.db.put_with("key", "2", put_options().if_absent()));
    CHECK(s.db.put_with("key", "2", put_options().if_present().keep_ttl()));
    CHECK(s.db.get_with_ttl("key")->value == "2" && s.db.get_with_ttl("key")->ttl.duration() == 9s);
    CHECK(s.db.put_with("key", "3", put_options()));
    CHECK(s.db.ttl("key")->never_expires());
    s.db.set_default_ttl(1h);
    CHECK(s.db.put_with("key", "4", put_options()));
    CHECK(s.db.ttl("key")->duration() == 1h);
    CHECK(s.db.put_with("key", "4", put_options().expires(kvstore::never)));
    CHECK(s.db.ttl("key")->never_expires());
    CHECK(s.db.compare_and_swap("key", "4", "4") && s.db.ttl("key")->duration() == 1h);
    CHECK(s.db.put_if_absent("absent", "1") && s.db.ttl("absent")->duration() == 1h);
    CHECK(s.db.put_if_absent("never", "1", kvstore::never) && s.db.ttl("never")->never_expires());
    CHECK(s.db.increment("sum", 1, kvstore::never) == 1 && s.db.ttl("sum")->never_expires());
    THROWS(error, s.db.put_with("key", "5", put_options().if_absent().if_present()));
    CHECK(s.db.get("key") == "4");
}

SCENARIO(compare_and_swap_and_erase_require_the_expected_value) {
    check::timed_store s;
    s.db.put("key", "1");
    CHECK(!s.db.compare_and_swap("key", "2", "3"));
    CHECK(!s.db.compare_and_swap("missing", "", "3"));
    CHECK(s.db.compare_and_swap("key", "1", "2", 4s));
    CHECK(s.db.get("key") == "2" && s.db.ttl("key")->duration() == 4s);
    CHECK(!s.db.compare_and_erase("key", "1"));
    CHECK(s.db.compare_and_erase("key", "2"));
    CHECK(!s.db.contains("key"));
}

SCENARIO(increment_adds_and_keeps_the_ttl) {
    check::timed_store s;
    CHECK(s.db.increment("n") == 1);
    CHECK(s.db.increment("n", 41) == 42);
    CHECK(s.db.increment("n", -2) == 40);
    CHECK(s.db.get("n") == "40");
    CHECK(s.db.increment("window", 1, 60s) == 1);
    s.time.advance(59s);
    CHECK(s.db.increment("window", 1, 60s) == 2);
    s.time.advance(1s);
    CHECK(s.db.increment("window", 1, 60s) == 1);
    s.db.put("text", "many");
    THROWS(error, s.db.increment("text"));
    s.db.put("max", "9223372036854775807");
    THROWS(error, s.db.increment("max"));
}

SCENARIO(expire_changes_expiry_only_if_condition_holds) {
    check::timed_store s;
    CHECK(s.db.expire("key", 1s) == expire_result::missing);
    s.db.put("key", "value");
    CHECK(s.db.expire("key", 1s, expire_if::has_ttl) == expire_result::unchanged);
    CHECK(s.db.expire("key", 1s, expire_if::later) == expire_result::unchanged);
    CHECK(s.db.expire("key", 9s, expire_if::no_ttl) == expire_result::changed);
    CHECK(s.db.expire("key", 10s, expire_if::earlier) == expire_result::unchanged);
    CHECK(s.db.expire("key", 8s, expire_if::earlier) == expire_result::changed);
    CHECK(s.db.expire("key", 20s, expire_if::later) == expire_result::changed);
    CHECK(s.db.ttl("key")->duration() == 20s);
    CHECK(s.db.persist("key") == expire_result::changed);
    CHECK(s.db.persist("key") == expire_result::unchanged);
    CHECK(s.db.persist("missing") == expire_result::missing);
    CHECK(s.db.expire("key", -1s) == expire_result::changed);
    CHECK(!s.db.contains("key"));
}

SCENARIO(get_and_expire_extends_a_session) {
    check::timed_store s;
    s.db.put("session", "user", 20min);
    s.time.advance(19min);
    CHECK(s.db.get_and_expire("session", 20min) == "user");
    s.time.advance(19min);
    CHECK(s.db.get_and_expire("session", kvstore::never) == "user");
    CHECK(s.db.ttl("session")->never_expires());
    CHECK(s.db.get_and_expire("session", 0s) == "user"); // the last read
    CHECK(!s.db.get_and_expire("session", 20min));
}
