// Expiry: TTLs and expiry times of every type, rounding and saturation, default TTLs, purges, sweeps.
#include <cmath>
#include <cstdint>
#include <ratio>

#include "check.hpp"

using namespace std::chrono_literals;

SCENARIO(key_expires_exactly_after_its_ttl) {
    check::timed_store s;
    s.db.put("key", "value", 30s);
    s.time.advance(29999ms);
    CHECK(s.db.get("key") == "value");
    s.time.advance(1ms);
    CHECK(!s.db.get("key"));
    kvstore::family cf = s.db.create_family("family");
    cf.put("key", "value", 1ms);
    CHECK(cf.contains("key"));
    s.time.advance(1ms);
    CHECK(!cf.contains("key"));
}

SCENARIO(ttl_of_any_duration_type_rounds_up) {
    check::timed_store s;
    using namespace kvstore;
    const auto left = [&](const expiry& life) {
        s.db.put("key", "value", life);
        const auto found = s.db.ttl("key");
        return found ? found->duration() : -1ms;
    };
    CHECK(left(5ms) == 5ms);
    CHECK(left(1us) == 1ms);
    CHECK(left(1000us) == 1ms);
    CHECK(left(1000001ns) == 2ms);
    CHECK(left(2h) == 7200000ms);
    CHECK(left(std::chrono::duration<double>(1.5)) == 1500ms);
    CHECK(left(std::chrono::duration<float, std::milli>(0.25F)) == 1ms);
    CHECK(left(std::chrono::duration<std::uint8_t>(255)) == 255s);
    CHECK(left(std::chrono::duration<int, std::ratio<1, 3>>(1)) == 334ms);
    CHECK(left(std::chrono::duration<int, std::ratio<7, 3000>>(3)) == 7ms);
}

SCENARIO(ttl_of_zero_or_less_expires_at_once) {
    check::timed_store s;
    const kvstore::expiry lives[] = {0s, -1ns, -24h, std::chrono::hours::min(),
                                       std::chrono::duration<double>(-HUGE_VAL)};
    for (const kvstore::expiry& life : lives) {
        s.db.put("key", "value");
        s.db.put("key", "value", life);
        CHECK(!s.db.contains("key"));
    }
}

SCENARIO(ttl_that_is_too_large_saturates) {
    check::timed_store s;
    const kvstore::expiry_time last(kvstore::time_point(std::chrono::milliseconds(INT64_MAX - 1)));
    const kvstore::expiry lives[] = {std::chrono::hours::max(), std::chrono::milliseconds::max(),
                                       std::chrono::duration<double>(HUGE_VAL),
                                       std::chrono::duration<std::uint64_t>(UINT64_MAX),
                                       std::chrono::duration<std::int64_t, std::ratio<7, 3>>(INT64_MAX)};
    for (const kvstore::expiry& life : lives) {
        s.db.put("key", "value", life);
        CHECK(s.db.get("key") == "value");
        CHECK(last < *s.db.expires_at("key"));
    }
    s.db.put("far", "value", std::chrono::nanoseconds::max());
    CHECK(s.db.ttl("far")->duration() == 9223372036855ms);
}

SCENARIO(ttl_that_is_not_a_number_is_rejected) {
    check::timed_store s;
    THROWS(error, s.db.put("key", "value", std::chrono::duration<double>(std::nan(""))));
    CHECK(!s.db.contains("key"));
}

SCENARIO(expiry_time_of_any_precision_rounds_up) {
    check::timed_store s;
    const kvstore::time_point now = s.db.now();
    CHECK(now == s.time());
    s.db.put("ms", "value", now + 5ms);
    CHECK(s.db.expires_at("ms")->at() == now + 5ms);
    s.db.put("us", "value", now + 5us);
    CHECK(s.db.expires_at("us")->at() == now + 1ms);
    s.db.put("s", "value", std::chrono::time_point_cast<std::chrono::seconds>(now) + 60s);
    CHECK(s.db.ttl("s")->duration() == 60s);
    s.db.put("system", "value", std::chrono::system_clock::now());
    CHECK(s.db.contains("system"));
    s.db.put("past", "value", now - 1ms);
    CHECK(!s.db.contains("past"));
    kvstore::store real(":memory:"); // its clock is past 2001
    for (const kvstore::expiry& early :
         {kvstore::expiry(std::chrono::system_clock::time_point{}), kvstore::expiry(-24h * 365 * 200)}) {
        real.put("early", "value");
        CHECK(real.expire("early", early) == kvstore::expire_result::changed);
        CHECK(!real.contains("early"));
        real.put("early", "value", early);
        CHECK(!real.contains("early"));
    }
    for (const auto at : {std::chrono::milliseconds(0), -1ms, std::chrono::milliseconds::min()}) {
        s.db.put("epoch", "value", kvstore::time_point(at)); // 0 is an expiry time here, not "never"
        CHECK(!s.db.contains("epoch"));
    }
    s.db.put("copy", "value", *s.db.expires_at("ms"));
    CHECK(*s.db.expires_at("copy") == *s.db.expires_at("ms"));
}

SCENARIO(key_without_ttl_differs_from_missing_key) {
    check::timed_store s;
    s.db.put("forever", "value", kvstore::never);
    s.db.put("soon", "value", 5s);
    CHECK(!s.db.ttl("missing") && !s.db.expires_at("missing") && !s.db.get_with_ttl("missing"));
    CHECK(s.db.ttl("forever")->never_expires());
    CHECK(s.db.ttl("forever")->duration() == std::chrono::milliseconds::max());
    CHECK(*s.db.ttl("forever") == kvstore::remaining_ttl(kvstore::never));
    CHECK(s.db.expires_at("forever")->never_expires());
    CHECK(*s.db.expires_at("forever") == kvstore::never);
    CHECK(*s.db.expires_at("soon") != kvstore::never);
    CHECK(*s.db.expires_at("soon") < *s.db.expires_at("forever"));
    CHECK(!s.db.ttl("soon")->never_expires());
    CHECK(*s.db.ttl("soon") < *s.db.ttl("forever"));
    CHECK(*s.db.ttl("soon") != *s.db.ttl("forever"));
    const auto both = s.db.get_with_ttl("soon");
    CHECK(both && both->value == "value" && both->ttl.duration() == 5s);
    CHECK(s.db.get_with_ttl("forever")->ttl.never_expires());
    s.db.put("copy", "value", *s.db.expires_at("forever"));
    CHECK(s.db.ttl("copy")->never_expires());
    s.time.advance(5s);
    CHECK(s.db.ttl("soon")->duration() == 0ms); // the first call to find the expired row
    CHECK(!s.db.ttl("soon"));
    kvstore::family cf = s.db.create_family("family");
    cf.put("soon", "value", 7s);
    CHECK(cf.get_with_ttl("soon")->ttl.duration() == 7s && cf.ttl("soon")->duration() == 7s);
}

SCENARIO(default_ttl_applies_to_plain_puts) {
    check::timed_store s;
    CHECK(!s.db.default_ttl());
    s.db.set_default_ttl(90s);
    CHECK(s.db.default_ttl() == 90s);
    s.db.put("default", "value");
    s.db.put("given", "value", 1s);
    s.db.put("never", "value", kvstore::never);
    CHECK(s.db.ttl("default")->duration() == 90s);
    CHECK(s.db.ttl("given")->duration() == 1s);
    CHECK(s.db.ttl("never")->never_expires());
    s.db.set_default_ttl(1us);
    CHECK(s.db.default_ttl() == 1ms);
    s.db.set_default_ttl(std::nullopt);
    CHECK(!s.db.default_ttl());
    s.db.set_default_ttl(1s);
    s.db.set_default_ttl(0s);
    CHECK(!s.db.default_ttl());
    THROWS(error, s.db.set_default_ttl(-1us));
    THROWS(error, s.db.set_default_ttl(24h * 366 * 21));
}

SCENARIO(next_expiry_returns_earliest_expiry_time) {
    check::timed_store s;
    kvstore::family cf = s.db.create_family("family");
    CHECK(!s.db.next_expiry() && !cf.next_expiry());
    cf.put("later", "value", 20s);
    s.db.put("sooner", "value", 10s);
    CHECK(s.db.next_expiry() == s.time() + 10s); // of all families
    CHECK(cf.next_expiry() == s.time() + 20s);
    CHECK(!s.db.create_family("other").next_expiry());
}

SCENARIO(purges_remove_only_expired_keys) {
    check::timed_store s;
    kvstore::family cf = s.db.create_family("family");
    for (int i = 0; i < 10; i++) {
        s.db.put("key" + std::to_string(i), "value", std::chrono::seconds(i + 1));
        cf.put("key" + std::to_string(i), "value", std::chrono::seconds(i + 1));
    }
    s.time.advance(5s);
    CHECK(s.db.count() == 10 && s.db.count_live() == 5);
    CHECK(s.db.purge_before(s.time() - 3s) == 1);
    CHECK(s.db.purge_expired() == 4);
    CHECK(s.db.count() == 5 && cf.count() == 10);
    const kvstore::purge_result first = s.db.purge_step(2);
    CHECK(first.removed == 2 && first.more);
    const kvstore::purge_result rest = s.db.purge_step(0, 10s);
    CHECK(rest.removed == 3 && !rest.more);
    CHECK(s.db.purge_step().removed == 0);
    THROWS(error, s.db.purge_step(-1));
    THROWS(error, s.db.purge_step(0, -1us));
    s.time.advance(1s);
    CHECK(cf.purge_expired() == 1 && cf.purge_before(s.time() + 1h) == 0);
}

SCENARIO(sweep_removes_keys_written_before_max_age) {
    check::timed_store s;
    s.db.put("old", "value");
    THROWS(error, s.db.write_time("old"));
    CHECK(!s.db.write_tracking());
    s.db.set_write_tracking(true);
    CHECK(s.db.write_tracking());
    const kvstore::time_point written = s.time();
    s.time.advance(10s);
    s.db.put("new", "value");
    CHECK(s.db.write_time("old") == written);
    CHECK(!s.db.write_time("missing"));
    CHECK(s.db.sweep(5s) == 1);
    CHECK(!s.db.contains("old") && s.db.contains("new"));
    THROWS(error, s.db.sweep(-1us));
    s.db.set_write_tracking(false);
    THROWS(error, s.db.sweep(5s));
}

SCENARIO(store_returns_to_the_system_clock) {
    check::timed_store s;
    CHECK(s.db.now() == s.time());
    s.db.use_system_clock();
    CHECK(s.db.now() > s.time() + 24h * 365);
    s.db.set_clock([] { return std::chrono::system_clock::time_point(5ms + 999us); });
    CHECK(s.db.now().time_since_epoch() == 5ms); // rounded down
}

// The C API takes early moments for durations and refuses them, from a bound on that the C++ header repeats.
SCENARIO(every_past_moment_is_accepted_whatever_the_clock) {
    using std::chrono::milliseconds;
    constexpr std::int64_t first_moment = 94694400000;
    constexpr std::int64_t clock_is_set = 978307200000;
    for (const std::int64_t now : {first_moment - 1, first_moment, clock_is_set - 1, clock_is_set, clock_is_set + 1}) {
        check::timed_store s;
        s.time.advance(milliseconds(now) - s.time().time_since_epoch());
        for (const std::int64_t past : {INT64_C(0), INT64_C(1), first_moment - 1, first_moment, now}) {
            s.db.put("key", "value", kvstore::time_point(milliseconds(past < now ? past : now)));
            CHECK(!s.db.contains("key"));
        }
        s.db.put("key", "value", kvstore::time_point(milliseconds(now + 1)));
        CHECK(s.db.contains("key"));
    }
}
