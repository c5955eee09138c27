// Functions that return a result instead of throwing. These scenarios run with and without exceptions; all C
// functions are reachable through the functions they call.
#include <array>
#include <climits>
#include <fstream>
#include <map>
#include <memory>
#include <type_traits>

#include "check.hpp"

using namespace std::chrono_literals;
using kvstore::expire_result;

namespace {

kvstore::store opened(const std::string& path) { return VALUE(kvstore::store::try_open(path)); }

// Store in memory with a controlled clock.
struct clocked_store {
    check::clock time;
    kvstore::store db = opened(":memory:");

    clocked_store() { DONE(db.try_set_clock(time)); }
};

template <class Range>
std::string keys_until_error(const Range& range) {
    std::string keys;
    for (const auto& [key, value] : range.until_error()) {
        (void)value;
        keys.append(key).append(" ");
    }
    return keys;
}

template <class Range>
std::string parts_until_error(const Range& range) {
    std::string parts;
    for (std::string_view part : range.until_error()) {
        parts.append(part).append(" ");
    }
    return parts;
}

void put_all(kvstore::store& db, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
        DONE(db.try_put(key, std::string("value of ") + key));
    }
}

} // namespace

SCENARIO(result_holds_a_value_or_a_failure) {
    kvstore::result<std::string> value("text");
    CHECK(value.ok() && *value == "text" && value->size() == 4);
    const kvstore::result<std::string> same = value;
    CHECK(*same == "text" && same->size() == 4);
    CHECK(std::move(value).value_or("other") == "text");
    kvstore::result<std::string> failed(kvstore::failure(kvstore::errc::busy, "reason", kvstore::hint::retry));
    CHECK(!failed.ok() && failed.error().code() == kvstore::errc::busy && failed.error().retryable());
    CHECK(failed.error().hint() == kvstore::hint::retry && failed.error().reason() == "reason");
    CHECK(failed.error().what() == std::string("reason: ") + kvstore::describe(kvstore::hint::retry));
    const kvstore::failure taken = std::move(failed).error();
    CHECK(taken.reason() == "reason");
    CHECK(kvstore::result<int>(taken).value_or(7) == 7);
    CHECK(kvstore::result<void>().ok() && !kvstore::result<void>(taken).ok());
    CHECK(kvstore::result<void>(taken).error().code() == kvstore::errc::busy);
    kvstore::result<std::unique_ptr<int>> owner(std::make_unique<int>(5));
    CHECK(**owner == 5 && *(*std::move(owner)) == 5);
    // A conversion to bool would test whether the call succeeded, not what it returned.
    static_assert(!std::is_constructible_v<bool, kvstore::result<bool>>);
    static_assert(std::is_nothrow_move_constructible_v<kvstore::result<kvstore::store>>);
#if KVSTORE_EXCEPTIONS
    CHECK(kvstore::result<int>(3).value() == 3);
    THROWS(busy, kvstore::result<int>(taken).value());
    THROWS(busy, kvstore::result<void>(taken).value());
    const kvstore::result<int> constant(taken);
    THROWS(busy, constant.value());
#endif
}

SCENARIO(try_open_returns_a_store_or_the_reason) {
    FAILS(cantopen, kvstore::store::try_open("no/such/folder/store.db"));
    FAILS(error, kvstore::store::try_open(std::string("a\0b", 3)));
    kvstore::config config;
    config.read_only = true;
    FAILS(cantopen, kvstore::store::try_open("missing.db", config));
    config = {};
    config.max_value_size = 3;
    config.exclusive = true;
    kvstore::store db = VALUE(kvstore::store::try_open("opened.db", config));
    DONE(db.try_put("key", "abc"));
    FAILS(busy, kvstore::store::try_open("opened.db"));
    const kvstore::result<void> failed = db.try_put("key", "long");
    CHECK(failed.error().hint() == kvstore::hint::raise_max_value_size);
    DONE(db.try_close());
    DONE(db.try_close());
    CHECK(VALUE(opened("opened.db").try_get("key")) == "abc");
    std::ofstream("text.db") << std::string(5000, 'x');
    FAILS(notadb, kvstore::store::try_open("text.db"));
}

SCENARIO(try_writes_return_what_they_did) {
    clocked_store s;
    DONE(s.db.try_put("key", "1"));
    DONE(s.db.try_put("ttl", "1", 5s));
    CHECK(VALUE(s.db.try_put_if_absent("new", "1")) && !VALUE(s.db.try_put_if_absent("new", "2", 1s)));
    CHECK(!VALUE(s.db.try_put_with("none", "1", kvstore::put_options().if_present())));
    FAILS(error, s.db.try_put_with("none", "1", kvstore::put_options().if_present().if_absent()));
    CHECK(VALUE(s.db.try_compare_and_swap("key", "1", "2")) && !VALUE(s.db.try_compare_and_swap("key", "1", "3")));
    CHECK(VALUE(s.db.try_increment("n", 5)) == 5);
    DONE(s.db.try_put("text", "many"));
    FAILS(error, s.db.try_increment("text"));
    CHECK(VALUE(s.db.try_erase("new")) && !VALUE(s.db.try_erase("new")));
    CHECK(!VALUE(s.db.try_compare_and_erase("key", "1")) && VALUE(s.db.try_compare_and_erase("key", "2")));
    CHECK(VALUE(s.db.try_erase_many({"text", "none"})) == 1);
    CHECK(VALUE(s.db.try_erase_many(std::vector<std::string>{"n"})) == 1);
    put_all(s.db, {"a", "b", "c"});
    CHECK(VALUE(s.db.try_erase_range("a", "c")) == 2);
    kvstore::family cf = VALUE(s.db.try_create_family("family"));
    DONE(cf.try_put("key", "1"));
    DONE(cf.try_put("key", "1", 2s));
    CHECK(!VALUE(cf.try_put_if_absent("key", "2")) && VALUE(cf.try_erase("key")));
    DONE(cf.try_clear());
    DONE(s.db.try_clear());
    CHECK(VALUE(s.db.try_count()) == 0);
    FAILS(error, s.db.try_put("", "value"));
    FAILS(error, s.db.try_put("key", "value", std::chrono::duration<double>(-1.0 / 0.0) * 0));
    FAILS(error, s.db.try_erase_many({"a", ""}));
    const std::string_view huge("x", static_cast<std::size_t>(INT_MAX) + 1); // only the first byte is readable
    FAILS(error, s.db.try_put(huge, "value"));
    FAILS(error, s.db.try_put("key", huge));
    FAILS(error, s.db.try_erase_many({kvstore::bytes_view(huge)}));
    FAILS(error, s.db.try_erase_range(huge, std::nullopt));
    CHECK(VALUE(s.db.try_count()) == 0);
}

SCENARIO(try_reads_return_values_in_results) {
    clocked_store s;
    DONE(s.db.try_put("key", "value", 9s));
    CHECK(VALUE(s.db.try_get("key")) == "value" && VALUE(s.db.try_get("none")) == std::nullopt);
    CHECK(VALUE(s.db.try_get<std::vector<char>>("key"))->size() == 5);
    CHECK(VALUE(s.db.try_get_buffer("key"))->view() == "value" && !VALUE(s.db.try_get_buffer("none")));
    std::array<char, 3> part{};
    CHECK(VALUE(s.db.try_get_into("key", part)) == std::size_t{5} && part[2] == 'l');
    CHECK(VALUE(s.db.try_get_into("key", part.data(), 1)) == std::size_t{5});
    CHECK(!VALUE(s.db.try_get_into("none", part)));
    CHECK(VALUE(s.db.try_get_with_ttl("key"))->ttl.duration() == 9s && !VALUE(s.db.try_get_with_ttl("none")));
    const auto listed = VALUE(s.db.try_get_many({"none", "key"}));
    CHECK(!listed[0] && listed[1] == "value");
    CHECK(VALUE(s.db.try_get_many(std::vector<std::string>{"key"})).size() == 1);
    CHECK(VALUE(s.db.try_contains("key")) && !VALUE(s.db.try_contains("none")));
    CHECK(VALUE(s.db.try_count()) == 1 && VALUE(s.db.try_count_live()) == 1);
    kvstore::family cf = VALUE(s.db.try_default_family());
    CHECK(VALUE(cf.try_get("key")) == "value" && VALUE(cf.try_contains("key")) && VALUE(cf.try_count()) == 1);
    CHECK(VALUE(cf.try_get_with_ttl("key"))->value == "value" && VALUE(cf.try_name()) == "default");
    FAILS(error, s.db.try_get(""));
    FAILS(error, s.db.try_contains(""));
    FAILS(error, s.db.try_get_many({""}));
    const std::string key = VALUE(kvstore::try_row_key("p", "c"));
    DONE(s.db.try_put(key, "row"));
    CHECK(parts_until_error(VALUE(s.db.try_values())) == "value row " ||
          parts_until_error(VALUE(s.db.try_values())) == "row value ");
    FAILS(error, kvstore::try_row_key(std::string(65000, 'p'), std::string(1000, 'c')));
    CHECK(VALUE(kvstore::try_raw_key(std::string(32, '\xa5'))).size() == 67);
    FAILS(error, kvstore::try_raw_key("short"));
}

SCENARIO(try_calls_on_expiry_return_results) {
    clocked_store s;
    put_all(s.db, {"a", "b"});
    CHECK(VALUE(s.db.try_expire("a", 5s)) == expire_result::changed);
    CHECK(VALUE(s.db.try_expire("none", 5s)) == expire_result::missing);
    CHECK(VALUE(s.db.try_ttl("a"))->duration() == 5s && !VALUE(s.db.try_ttl("none")));
    CHECK(VALUE(s.db.try_expires_at("a"))->at() == s.time() + 5s && VALUE(s.db.try_expires_at("b"))->never_expires());
    CHECK(VALUE(s.db.try_next_expiry()) == s.time() + 5s);
    CHECK(VALUE(s.db.try_persist("a")) == expire_result::changed);
    CHECK(VALUE(s.db.try_persist("a")) == expire_result::unchanged);
    CHECK(VALUE(s.db.try_get_and_expire("a", 1s)) == "value of a" && !VALUE(s.db.try_get_and_expire("none", 1s)));
    DONE(s.db.try_set_default_ttl(90s));
    CHECK(VALUE(s.db.try_default_ttl()) == 90s);
    DONE(s.db.try_set_default_ttl(std::nullopt));
    CHECK(!VALUE(s.db.try_default_ttl()));
    FAILS(error, s.db.try_set_default_ttl(-1s));
    FAILS(error, s.db.try_write_time("b"));
    DONE(s.db.try_set_write_tracking(true));
    CHECK(VALUE(s.db.try_write_tracking()) && VALUE(s.db.try_write_time("b")) == s.time());
    s.time.advance(1s);
    CHECK(VALUE(s.db.try_purge_expired()) == 1);
    DONE(s.db.try_put("c", "", 1s));
    kvstore::family cf = VALUE(s.db.try_create_family("family"));
    DONE(cf.try_put("d", "", 1s));
    CHECK(VALUE(cf.try_ttl("d"))->duration() == 1s && VALUE(cf.try_next_expiry()) == s.time() + 1s);
    s.time.advance(2s);
    CHECK(VALUE(cf.try_purge_expired()) == 1);
    CHECK(VALUE(s.db.try_purge_before(s.time())) == 1);
    CHECK(VALUE(s.db.try_sweep(1s)) == 1 && VALUE(s.db.try_count()) == 0);
    DONE(s.db.try_put("e", "", 0s));
    const kvstore::purge_result purged = VALUE(s.db.try_purge_step());
    CHECK(purged.removed == 1 && !purged.more);
    FAILS(error, s.db.try_purge_step(-1));
    FAILS(error, s.db.try_sweep(std::chrono::duration<double>(-1.0 / 0.0) * 0));
}

SCENARIO(try_set_clock_replaces_the_clock) {
    kvstore::store db = opened(":memory:");
    DONE(db.try_set_clock([] { return kvstore::time_point(7s); }));
    CHECK(VALUE(db.try_now()).time_since_epoch() == 7s);
    DONE(db.try_put("key", "value", 1s));
    CHECK(VALUE(db.try_expires_at("key"))->at().time_since_epoch() == 8s);
    DONE(db.try_use_system_clock());
    CHECK(VALUE(db.try_now()).time_since_epoch() > 24h && kvstore::now().time_since_epoch() > 24h);
}

SCENARIO(try_cursor_steps_return_results) {
    clocked_store s;
    put_all(s.db, {"a", "b", "c", "d"});
    kvstore::cursor it = VALUE(s.db.try_items());
    CHECK(!VALUE(it.try_eof()) && VALUE(it.try_key()) == "a" && VALUE(it.try_value()) == "value of a");
    CHECK(VALUE(it.try_expires_at()) == kvstore::never);
    CHECK(VALUE(it.try_next()) && VALUE(it.try_key()) == "b");
    CHECK(VALUE(it.try_seek("bb")) && VALUE(it.try_key()) == "c");
    CHECK(VALUE(it.try_fetch(9)).size() == 2 && VALUE(it.try_eof()));
    FAILS(error, it.try_key());
    FAILS(error, it.try_value());
    FAILS(error, it.try_expires_at());
    FAILS(error, it.try_last());
    FAILS(error, it.try_prev());
    FAILS(error, it.try_seek(""));
    CHECK(VALUE(it.try_first()) && VALUE(it.try_key()) == "a");
    kvstore::family cf = VALUE(s.db.try_default_family());
    for (const bool of_family : {false, true}) {
        const auto order = kvstore::direction::reverse;
        kvstore::cursor back = VALUE(of_family ? cf.try_items({}, order) : s.db.try_items({}, order));
        CHECK(VALUE(back.try_prev()) && VALUE(back.try_key()) == "c");
        CHECK(VALUE(back.try_last()) && VALUE(back.try_key()) == "d");
        kvstore::cursor some = VALUE(of_family ? cf.try_items("a") : s.db.try_items("a"));
        kvstore::cursor same = VALUE(of_family ? cf.try_items("a", order) : s.db.try_items("a", order));
        CHECK(VALUE(some.try_key()) == "a" && VALUE(same.try_key()) == "a");
    }
    CHECK(VALUE(VALUE(cf.try_items()).try_key()) == "a");
}

SCENARIO(iteration_until_error_visits_every_entry) {
    clocked_store s;
    for (int n = 100; n < 300; n++) {
        DONE(s.db.try_put(std::to_string(n), "value"));
    }
    kvstore::cursor items = VALUE(s.db.try_items("1"));
    int seen = 100;
    for (auto [key, value] : items.until_error()) {
        CHECK(key == std::to_string(seen) && value == "value");
        seen++;
    }
    CHECK(seen == 200 && items.status().ok());
    CHECK(VALUE(items.try_first()) && items.until_error().begin()->key == "100"); // restarted
    int steps = 0;
    for (auto [key, value] : VALUE(s.db.try_items()).until_error()) { // the cursor is destroyed by now
        steps += key.empty() || value.empty() ? 0 : 1;
    }
    CHECK(steps == 200);
    CHECK(VALUE(s.db.try_erase_range("100", "297")) == 197);
    CHECK(parts_until_error(VALUE(s.db.try_keys())) == "297 298 299 ");
    CHECK(parts_until_error(VALUE(s.db.try_keys("29", kvstore::direction::reverse))) == "299 298 297 ");
    CHECK(parts_until_error(VALUE(s.db.try_values("298"))) == "value ");
    CHECK(keys_until_error(VALUE(s.db.try_range("298", std::nullopt))) == "298 299 ");
    DONE(s.db.try_put(VALUE(kvstore::try_row_key("p", "1")), "row"));
    CHECK(keys_until_error(VALUE(s.db.try_rows("p"))) == "1 ");
    DONE(s.db.try_put("x", "", 2s));
    DONE(s.db.try_put("y", "", 1s));
    CHECK(keys_until_error(VALUE(s.db.try_expiring(s.time(), kvstore::never))) == "y x ");
    CHECK(keys_until_error(VALUE(s.db.try_expiring(s.time(), s.time() + 2s))) == "y ");
    CHECK(VALUE(VALUE(s.db.try_expiring(s.time(), kvstore::never)).try_expires_at()).at() == s.time() + 1s);
    const std::string_view huge("x", static_cast<std::size_t>(INT_MAX) + 1);
    FAILS(error, s.db.try_items(huge));
    FAILS(error, s.db.try_keys(huge.substr(0, 1), kvstore::direction::forward).ok()
                     ? s.db.try_range(huge, std::nullopt)
                     : s.db.try_items(huge));
    FAILS(error, s.db.try_rows(huge));
#if __cplusplus >= 202002L
    static_assert(std::ranges::input_range<const kvstore::error_free_range<kvstore::entry>>);
    static_assert(std::ranges::borrowed_range<kvstore::error_free_range<kvstore::key_view>>);
#endif
}

SCENARIO(iteration_until_error_ends_at_the_failure) {
    for (const bool early : {true, false}) {
        kvstore::store db = opened(":memory:");
        put_all(db, {"a", "b", "c"});
        kvstore::cursor items = VALUE(db.try_items());
        auto keys = VALUE(db.try_keys());
        int steps = 0;
        if (early) {
            DONE(db.try_close());
        }
        for (auto [key, value] : items.until_error()) {
            CHECK(key == "a" && value == "value of a");
            steps++;
            DONE(db.try_close());
        }
        CHECK(steps == (early ? 0 : 1));
        FAILS(misuse, items.status());
        const auto range = items.until_error();
        auto at = range.begin(); // fails again
        CHECK(at == range.end());
        FAILS(misuse, at.status());
        CHECK(at->key.empty() && (*at++).value.empty() && at.expires_at() == kvstore::never);
        CHECK(parts_until_error(keys).empty());
        FAILS(misuse, keys.status());
    }
    kvstore::store db = opened(":memory:");
    put_all(db, {"a"});
    const kvstore::cursor items = VALUE(db.try_items());
    auto at = items.until_error().begin();
    ++at;
    CHECK(at == items.until_error().end() && at.status().ok());
    CHECK(at->key.empty()); // no entry at the end
    FAILS(error, at.status());
    CHECK(items.until_error().begin() == items.until_error().end() && items.status().ok()); // a new iteration
}

SCENARIO(try_find_returns_iterator_at_live_key_or_end) {
    kvstore::store db = opened(":memory:");
    put_all(db, {"a", "b", "c"});
    auto at = VALUE(db.try_find("b"));
    CHECK(at != db.end() && at->value == "value of b");
    ++at;
    CHECK(at->key == "c" && VALUE(db.try_find("bb")) == db.end());
    FAILS(error, db.try_find(""));
    DONE(db.try_close());
    ++at;
    CHECK(at == db.end());
    FAILS(misuse, at.status());
    FAILS(misuse, db.try_find("a"));
}

SCENARIO(try_batch_commits_or_keeps_its_writes) {
    clocked_store s;
    kvstore::family cf = VALUE(s.db.try_create_family("family"));
    kvstore::batch batch = VALUE(s.db.try_batch());
    DONE(batch.try_put("a", "1"));
    DONE(batch.try_put(cf, "b", "2", 5s));
    DONE(batch.try_erase("none"));
    DONE(batch.try_erase(cf, "none"));
    FAILS(error, batch.try_put("", "value"));
    FAILS(error, batch.try_erase(""));
    CHECK(VALUE(batch.try_count()) == 4 && !VALUE(s.db.try_contains("a")));
    DONE(batch.try_commit());
    CHECK(VALUE(batch.try_count()) == 0 && VALUE(s.db.try_get("a")) == "1" && VALUE(cf.try_get("b")) == "2");
    DONE(batch.try_put("c", "3"));
    DONE(batch.try_clear());
    DONE(batch.try_put(cf, "c", "3"));
    const kvstore::family taken = std::move(cf);
    FAILS(misuse, batch.try_put(cf, "d", "4"));
    FAILS(misuse, batch.try_erase(cf, "d"));
    {
        const kvstore::family closed = VALUE(s.db.try_family_or_create("other"));
        DONE(batch.try_put(closed, "e", "5"));
    }
    DONE(s.db.try_drop_family("other"));
    FAILS(error, batch.try_commit());
    CHECK(VALUE(batch.try_count()) == 2);
}

SCENARIO(transaction_is_rolled_back_by_its_destructor) {
    kvstore::store db = opened("rolled_back.db");
    kvstore::store other = opened("rolled_back.db");
    {
        const kvstore::transaction tx = VALUE(db.try_begin());
        DONE(db.try_put("key", "1"));
        FAILS(error, db.try_begin());
        kvstore::set_wait_hook([]() noexcept { return true; }); // ends the wait for the lock at once
        const kvstore::result<void> busy = other.try_put("key", "2");
        kvstore::set_wait_hook(nullptr);
        CHECK(!busy.ok() && busy.error().code() == kvstore::errc::busy && busy.error().retryable());
        CHECK(busy.error().hint() == kvstore::hint::raise_busy_timeout);
    }
    CHECK(!VALUE(db.try_contains("key")));
    kvstore::transaction tx = VALUE(db.try_begin());
    DONE(db.try_put("key", "3"));
    DONE(tx.try_commit());
    FAILS(misuse, tx.try_commit());
    tx = VALUE(db.try_begin());
    DONE(db.try_put("key", "4"));
    DONE(tx.try_rollback());
    FAILS(misuse, tx.try_rollback());
    kvstore::snapshot snapshot = VALUE(db.try_snapshot());
    DONE(other.try_put("key", "5"));
    CHECK(VALUE(db.try_get("key")) == "3" && snapshot.is_open());
    FAILS(readonly, db.try_put("key", "6"));
    DONE(snapshot.try_end());
    FAILS(misuse, snapshot.try_end());
    CHECK(VALUE(db.try_get("key")) == "5");
}

SCENARIO(try_transaction_commits_only_a_success) {
    kvstore::store db = opened(":memory:");
    const auto add = [&](int amount) {
        return db.try_transaction([&]() -> kvstore::result<std::int64_t> {
            auto sum = db.try_increment("balance", amount);
            if (sum.ok() && *sum < 0) {
                return kvstore::failure(kvstore::errc::error, "not enough");
            }
            return sum;
        });
    };
    CHECK(VALUE(add(50)) == 50);
    const auto refused = add(-80);
    CHECK(!refused.ok() && refused.error().reason() == "not enough");
    CHECK(VALUE(db.try_get("balance")) == "50");
    DONE(db.try_transaction([&] { return db.try_put("key", "value"); }));
    FAILS(error, db.try_transaction([&] { return db.try_put("", "value"); }));
    FAILS(error, db.try_transaction([&] { return db.try_transaction([&] { return db.try_clear(); }); }));
    FAILS(misuse, db.try_transaction([&] { return db.try_close(); }));
}

SCENARIO(try_families_return_handles_or_reasons) {
    kvstore::store db = opened(":memory:");
    FAILS(notfound, db.try_family("a"));
    {
        kvstore::family a = VALUE(db.try_create_family("a"));
        CHECK(VALUE(a.try_name()) == "a" && VALUE(VALUE(db.try_family("a")).try_name()) == "a");
        CHECK(VALUE(VALUE(db.try_family_or_create("a")).try_name()) == "a");
        FAILS(error, db.try_create_family("a"));
        FAILS(busy, db.try_drop_family("a"));
        CHECK(VALUE(db.try_families()) == std::vector<std::string>{"a"});
    }
    DONE(db.try_drop_family("a"));
    FAILS(notfound, db.try_drop_family("a"));
    FAILS(error, db.try_family_or_create("__reserved"));
    FAILS(error, db.try_create_family(std::string("a\0b", 3)));
    FAILS(error, db.try_drop_family(std::string("a\0b", 3)));
}

SCENARIO(try_maintenance_returns_results) {
    kvstore::store db = opened("results_maintained.db");
    put_all(db, {"a", "b"});
    CHECK(VALUE(db.try_stats()).puts == 2);
    DONE(db.try_reset_stats());
    CHECK(VALUE(db.try_stats()).puts == 0);
    DONE(db.try_integrity_check());
    CHECK(VALUE(db.try_repair()) == 0);
    DONE(db.try_sync());
    DONE(db.try_incremental_vacuum());
    FAILS(error, db.try_incremental_vacuum(-1));
    CHECK(VALUE(db.try_checkpoint(kvstore::checkpoint_mode::truncate)).wal_frames == 0);
    FAILS(error, db.try_set_limit(1000));
    DONE(db.try_set_limit(256 << 10, kvstore::eviction::oldest));
    CHECK(VALUE(db.try_limit()).policy == kvstore::eviction::oldest);
    DONE(db.try_set_limit(kvstore::limit()));
    DONE(db.try_start_cleaner(1h, 100));
    FAILS(error, db.try_start_cleaner(1h));
    DONE(db.try_stop_cleaner());
    CHECK(!kvstore::version().empty() && !kvstore::sqlite_version().empty() && !kvstore::engine().empty());
    DONE(db.try_close());
    std::fstream("results_maintained.db", std::ios::in | std::ios::out | std::ios::binary).seekp(4096 * 2)
        << std::string(4096 * 4, 'z');
    kvstore::config config;
    config.mmap_size = 0;
    auto damaged = kvstore::store::try_open("results_maintained.db", config);
    if (damaged.ok()) {
        FAILS(corrupt, damaged->try_integrity_check());
    } else {
        FAILS(corrupt, damaged);
    }
}

SCENARIO(try_backup_and_copy_report_progress) {
    kvstore::store db = opened("results_from.db");
    put_all(db, {"a", "b"});
    DONE(db.try_backup("results_backup.db"));
    FAILS(error, db.try_backup("results_backup.db"));
    int calls = 0;
    CHECK(VALUE(db.try_backup("results_watched.db", [&](int left, int total) { calls += left <= total ? 1 : 0; })));
    CHECK(calls > 0 && !VALUE(db.try_backup("results_part.db", [](int, int) { return false; })));
    CHECK(!std::ifstream("results_part.db"));
    FAILS(error, db.try_backup(std::string("a\0b", 3), [](int, int) {}));
    kvstore::store to = opened("results_to.db");
    CHECK(!VALUE(db.try_copy_to(to, [](std::int64_t, std::int64_t) { return false; })));
    CHECK(VALUE(db.try_copy_to(to, [](std::int64_t done, std::int64_t total) { CHECK(done <= total); })));
    FAILS(error, db.try_copy_to(to)); // it has keys
    kvstore::store memory = opened(":memory:");
    DONE(to.try_copy_to(memory));
    CHECK(VALUE(memory.try_get("b")) == "value of b");
    const auto use_it = [&](int, int) { FAILS(misuse, memory.try_get("b")); };
    CHECK(VALUE(memory.try_backup("results_memory.db", use_it)));
    DONE(memory.try_close());
    FAILS(misuse, to.try_copy_to(memory));
}

SCENARIO(try_recover_saves_rows_unless_cancelled) {
    {
        kvstore::store db = opened("results_damaged.db");
        DONE(db.try_transaction([&]() -> kvstore::result<void> {
            for (int n = 0; n < 3000; n++) {
                DONE(db.try_put(std::to_string(n), std::string(60, 'x')));
            }
            return {};
        }));
    }
    CHECK(VALUE(kvstore::try_recover("results_damaged.db", "results_saved.db")).saved == 3000);
    FAILS(error, kvstore::try_recover("results_damaged.db", "results_saved.db"));
    FAILS(cantopen, kvstore::try_recover("no such.db", "results_third.db"));
    FAILS(error, kvstore::try_recover("results_damaged.db", std::string("a\0b", 3)));
    std::fstream("results_damaged.db", std::ios::in | std::ios::out | std::ios::binary).seekp(20 * 4096)
        << std::string(4096, '\0');
    std::uint64_t losses = 0;
    const auto report = [&](const char* text, std::int64_t, std::int64_t) {
        losses += text ? 1 : 0;
        return losses == 0;
    };
    FAILS(error, kvstore::try_recover("results_damaged.db", "results_third.db", report));
    CHECK(losses == 1 && !std::ifstream("results_third.db"));
}

SCENARIO(try_encryption_returns_results) {
    kvstore::store plain = opened("results_plain.db");
    CHECK(!VALUE(plain.try_is_encrypted()));
    FAILS(error, plain.try_reencrypt("password"));
    FAILS(error, plain.try_remove_encryption());
    FAILS(error, kvstore::store::try_open_encrypted("results_secret.db", ""));
    if (kvstore::engine().find("+sqlcipher") == std::string_view::npos) {
        FAILS(error, kvstore::store::try_open_encrypted("results_secret.db", "password"));
        return;
    }
    const std::string key = VALUE(kvstore::try_raw_key(std::string(32, '\x5a')));
    kvstore::store db = VALUE(kvstore::store::try_open_encrypted("results_secret.db", key));
    CHECK(VALUE(db.try_is_encrypted()));
    FAILS(auth_failed, kvstore::store::try_open("results_secret.db"));
    DONE(db.try_remove_encryption());
    CHECK(!VALUE(db.try_is_encrypted()));
}

namespace {

// Calls every function of a store or family, and expects errc::misuse.
template <class Keyspace>
void every_call_is_misuse(Keyspace& from) {
    char buffer[1];
    FAILS(misuse, from.try_get("k"));
    FAILS(misuse, from.try_get_buffer("k"));
    FAILS(misuse, from.try_get_into("k", buffer));
    FAILS(misuse, from.try_get_with_ttl("k"));
    FAILS(misuse, from.try_get_many({"k"}));
    FAILS(misuse, from.try_contains("k"));
    FAILS(misuse, from.try_count());
    FAILS(misuse, from.try_count_live());
    FAILS(misuse, from.try_find("k"));
    FAILS(misuse, from.try_put("k", "v"));
    FAILS(misuse, from.try_put("k", "v", 1s));
    FAILS(misuse, from.try_put_if_absent("k", "v", 1s));
    FAILS(misuse, from.try_put_with("k", "v", kvstore::put_options().expires(1s)));
    FAILS(misuse, from.try_compare_and_swap("k", "e", "v", 1s));
    FAILS(misuse, from.try_increment("k", 1, 1s));
    FAILS(misuse, from.try_erase("k"));
    FAILS(misuse, from.try_erase_many({"k"}));
    FAILS(misuse, from.try_compare_and_erase("k", "e"));
    FAILS(misuse, from.try_erase_range("k", "l"));
    FAILS(misuse, from.try_clear());
    FAILS(misuse, from.try_ttl("k"));
    FAILS(misuse, from.try_expires_at("k"));
    FAILS(misuse, from.try_expire("k", 1s));
    FAILS(misuse, from.try_persist("k"));
    FAILS(misuse, from.try_get_and_expire("k", 1s));
    FAILS(misuse, from.try_set_default_ttl(1s));
    FAILS(misuse, from.try_set_default_ttl(std::nullopt));
    FAILS(misuse, from.try_default_ttl());
    FAILS(misuse, from.try_next_expiry());
    FAILS(misuse, from.try_purge_expired());
    FAILS(misuse, from.try_purge_before(std::chrono::system_clock::now()));
    FAILS(misuse, from.try_set_write_tracking(true));
    FAILS(misuse, from.try_write_tracking());
    FAILS(misuse, from.try_write_time("k"));
    FAILS(misuse, from.try_sweep(1s));
    FAILS(misuse, from.try_items());
    FAILS(misuse, from.try_items("k", kvstore::direction::reverse));
    FAILS(misuse, from.try_keys());
    FAILS(misuse, from.try_values());
    FAILS(misuse, from.try_range("a", "b"));
    FAILS(misuse, from.try_rows("p"));
    FAILS(misuse, from.try_expiring(kvstore::time_point(), kvstore::never));
    FAILS(misuse, from.try_expiring(kvstore::time_point(), std::chrono::system_clock::now()));
}

void every_call_of_a_store_is_misuse(kvstore::store& from) {
    every_call_is_misuse(from);
    kvstore::store to = opened(":memory:");
    FAILS(misuse, from.try_family("f"));
    FAILS(misuse, from.try_create_family("f"));
    FAILS(misuse, from.try_family_or_create("f"));
    FAILS(misuse, from.try_default_family());
    FAILS(misuse, from.try_drop_family("f"));
    FAILS(misuse, from.try_families());
    FAILS(misuse, from.try_begin());
    FAILS(misuse, from.try_snapshot());
    FAILS(misuse, from.try_transaction([] { return kvstore::result<void>(); }));
    FAILS(misuse, from.try_batch());
    FAILS(misuse, from.try_purge_step());
    FAILS(misuse, from.try_start_cleaner(1s));
    FAILS(misuse, from.try_stop_cleaner());
    FAILS(misuse, from.try_set_clock([] { return std::chrono::system_clock::now(); }));
    FAILS(misuse, from.try_use_system_clock());
    FAILS(misuse, from.try_now());
    FAILS(misuse, from.try_stats());
    FAILS(misuse, from.try_reset_stats());
    FAILS(misuse, from.try_integrity_check());
    FAILS(misuse, from.try_repair());
    FAILS(misuse, from.try_set_limit(0));
    FAILS(misuse, from.try_limit());
    FAILS(misuse, from.try_sync());
    FAILS(misuse, from.try_incremental_vacuum());
    FAILS(misuse, from.try_checkpoint());
    FAILS(misuse, from.try_backup("copy.db"));
    FAILS(misuse, from.try_backup("copy.db", [](int, int) {}));
    FAILS(misuse, from.try_copy_to(to));
    FAILS(misuse, to.try_copy_to(from));
    FAILS(misuse, to.try_copy_to(from, [](std::int64_t, std::int64_t) {}));
    FAILS(misuse, from.try_is_encrypted());
    FAILS(misuse, from.try_reencrypt("password"));
    FAILS(misuse, from.try_remove_encryption());
}

void every_call_is_misuse(kvstore::cursor& from) {
    FAILS(misuse, from.try_eof());
    FAILS(misuse, from.try_key());
    FAILS(misuse, from.try_value());
    FAILS(misuse, from.try_expires_at());
    FAILS(misuse, from.try_first());
    FAILS(misuse, from.try_last());
    FAILS(misuse, from.try_next());
    FAILS(misuse, from.try_prev());
    FAILS(misuse, from.try_seek("k"));
    FAILS(misuse, from.try_fetch(1));
    CHECK(from.until_error().begin() == from.until_error().end());
}

void every_call_is_misuse(kvstore::batch& from) {
    FAILS(misuse, from.try_put("k", "v", 1s));
    FAILS(misuse, from.try_erase("k"));
    FAILS(misuse, from.try_count());
    FAILS(misuse, from.try_clear());
    FAILS(misuse, from.try_commit());
}

} // namespace

SCENARIO(try_calls_on_closed_and_moved_objects_are_misuse) {
    kvstore::store db = opened(":memory:");
    put_all(db, {"a"});
    kvstore::family cf = VALUE(db.try_create_family("family"));
    kvstore::cursor it = VALUE(db.try_items());
    kvstore::batch batch = VALUE(db.try_batch());
    kvstore::transaction tx = VALUE(db.try_begin());
    {
        kvstore::store taken = std::move(db);
        every_call_of_a_store_is_misuse(db);
        FAILS(misuse, db.try_close());
        db = std::move(taken);
        kvstore::family family = std::move(cf);
        every_call_is_misuse(cf);
        FAILS(misuse, cf.try_name());
        cf = std::move(family);
        kvstore::cursor cursor = std::move(it);
        every_call_is_misuse(it);
        FAILS(misuse, it.status());
        it = std::move(cursor);
        kvstore::batch writes = std::move(batch);
        every_call_is_misuse(batch);
        batch = std::move(writes);
        const kvstore::transaction open = std::move(tx);
        FAILS(misuse, tx.try_commit());
    }
    DONE(db.try_close());
    every_call_of_a_store_is_misuse(db);
    every_call_is_misuse(cf);
    FAILS(misuse, cf.try_name());
    every_call_is_misuse(it);
    every_call_is_misuse(batch);
    const kvstore::result<void> failed = db.try_put("key", "value");
    CHECK(failed.error().what() == std::string_view("the store is closed"));
}
