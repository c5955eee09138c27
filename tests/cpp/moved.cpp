// Moves: a moved object remains usable; a moved-from object throws on every call and can be assigned to.
#include <type_traits>
#include <utility>

#include "check.hpp"

using namespace std::chrono_literals;

template <class T>
static constexpr bool moves_only =
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && std::is_nothrow_destructible_v<T>;

SCENARIO(handles_are_movable_not_copyable) {
    static_assert(moves_only<kvstore::store>);
    static_assert(moves_only<kvstore::family>);
    static_assert(moves_only<kvstore::cursor>);
    static_assert(moves_only<kvstore::key_range>);
    static_assert(moves_only<kvstore::value_range>);
    static_assert(moves_only<kvstore::batch>);
    static_assert(moves_only<kvstore::transaction>);
    static_assert(moves_only<kvstore::snapshot>);
    static_assert(moves_only<kvstore::buffer>);
}

// Every call of a store and a family.
template <class Keyspace>
static void everything_throws(Keyspace& from) {
    char buffer[1];
    THROWS(misuse, from.get("k"));
    THROWS(misuse, from.get_buffer("k"));
    THROWS(misuse, from.get_into("k", buffer, 1));
    THROWS(misuse, from.get_with_ttl("k"));
    THROWS(misuse, from.template get<std::vector<char>>("k"));
    THROWS(misuse, from.get_into("k", buffer));
    THROWS(misuse, from.get_many({"k"}));
    THROWS(misuse, from.erase_many({"k"}));
    THROWS(misuse, from.contains("k"));
    THROWS(misuse, from.find("k"));
    THROWS(misuse, from.count());
    THROWS(misuse, from.count_live());
    THROWS(misuse, from.put("k", "v"));
    THROWS(misuse, from.put("k", "v", 1s));
    THROWS(misuse, from.put_if_absent("k", "v", 1s));
    THROWS(misuse, from.put_with("k", "v", kvstore::put_options().expires(1s)));
    THROWS(misuse, from.compare_and_swap("k", "e", "v", 1s));
    THROWS(misuse, from.increment("k", 1, 1s));
    THROWS(misuse, from.erase("k"));
    THROWS(misuse, from.compare_and_erase("k", "e"));
    THROWS(misuse, from.erase_range("k", "l"));
    THROWS(misuse, from.clear());
    THROWS(misuse, from.ttl("k"));
    THROWS(misuse, from.expires_at("k"));
    THROWS(misuse, from.expire("k", 1s));
    THROWS(misuse, from.persist("k"));
    THROWS(misuse, from.get_and_expire("k", 1s));
    THROWS(misuse, from.set_default_ttl(1s));
    THROWS(misuse, from.set_default_ttl(std::nullopt));
    THROWS(misuse, from.default_ttl());
    THROWS(misuse, from.next_expiry());
    THROWS(misuse, from.purge_expired());
    THROWS(misuse, from.purge_before(std::chrono::system_clock::now()));
    THROWS(misuse, from.set_write_tracking(true));
    THROWS(misuse, from.write_tracking());
    THROWS(misuse, from.write_time("k"));
    THROWS(misuse, from.sweep(1s));
    THROWS(misuse, from.items());
    THROWS(misuse, from.items("k", kvstore::direction::reverse));
    THROWS(misuse, from.keys());
    THROWS(misuse, from.range("a", "b"));
    THROWS(misuse, from.rows("p"));
    THROWS(misuse, from.expiring(kvstore::time_point(), std::chrono::system_clock::now()));
}

SCENARIO(moved_from_store_throws_on_every_call) {
    kvstore::store from(":memory:");
    from.put("key", "value");
    kvstore::store to = std::move(from);
    CHECK(to.get("key") == "value" && !from.native_handle());
    everything_throws(from);
    THROWS(misuse, from.close());
    THROWS(misuse, from.family("f"));
    THROWS(misuse, from.create_family("f"));
    THROWS(misuse, from.family_or_create("f"));
    THROWS(misuse, from.default_family());
    THROWS(misuse, from.drop_family("f"));
    THROWS(misuse, from.families());
    THROWS(misuse, from.begin());
    THROWS(misuse, from.snapshot());
    THROWS(misuse, from.transaction([] {}));
    THROWS(misuse, from.batch());
    THROWS(misuse, from.purge_step());
    THROWS(misuse, from.start_cleaner(1s));
    THROWS(misuse, from.stop_cleaner());
    THROWS(misuse, from.set_clock([] { return std::chrono::system_clock::now(); }));
    THROWS(misuse, from.use_system_clock());
    THROWS(misuse, from.now());
    THROWS(misuse, from.stats());
    THROWS(misuse, from.reset_stats());
    THROWS(misuse, from.integrity_check());
    THROWS(misuse, from.repair());
    THROWS(misuse, from.sync());
    THROWS(misuse, from.incremental_vacuum());
    THROWS(misuse, from.checkpoint());
    THROWS(misuse, from.backup("copy.db"));
    THROWS(misuse, from.backup("copy.db", [](int, int) {}));
    THROWS(misuse, from.copy_to(to));
    THROWS(misuse, from.is_encrypted());
    THROWS(misuse, from.reencrypt("password"));
    THROWS(misuse, from.remove_encryption());
    THROWS(misuse, to.copy_to(from, [](std::int64_t, std::int64_t) {}));
    from = std::move(to);
    CHECK(from.get("key") == "value");
}

SCENARIO(moved_from_family_throws_on_every_call) {
    kvstore::store db(":memory:");
    kvstore::family from = db.create_family("family");
    kvstore::family to = std::move(from);
    to.put("key", "value");
    CHECK(!from.native_handle());
    everything_throws(from);
    THROWS(misuse, from.name());
    from = std::move(to);
    CHECK(from.get("key") == "value");
}

SCENARIO(moved_from_cursor_throws_on_every_call) {
    kvstore::store db(":memory:");
    db.put("key", "value");
    kvstore::cursor from = db.items();
    kvstore::cursor to = std::move(from);
    CHECK(to.key() == "key" && !from.native_handle());
    THROWS(misuse, from.eof());
    THROWS(misuse, from.key());
    THROWS(misuse, from.value());
    THROWS(misuse, from.expires_at());
    THROWS(misuse, from.first());
    THROWS(misuse, from.last());
    THROWS(misuse, from.next());
    THROWS(misuse, from.prev());
    THROWS(misuse, from.fetch(1));
    THROWS(misuse, from.begin());
    THROWS(misuse, from.seek("key"));
    THROWS(misuse, [&] { for (auto item : from) { (void)item; } }());
    from = std::move(to);
    CHECK(from.key() == "key");
    kvstore::key_range keys = db.keys();
    kvstore::key_range taken = std::move(keys);
    THROWS(misuse, [&] { for (auto key : keys) { (void)key; } }());
    CHECK(*taken.begin() == "key");
}

SCENARIO(moved_from_batch_and_transaction_throw) {
    kvstore::store db(":memory:");
    kvstore::family cf = db.create_family("family");
    kvstore::batch from = db.batch();
    kvstore::batch to = std::move(from);
    THROWS(misuse, from.put("k", "v", 1s));
    THROWS(misuse, from.put(cf, "k", "v"));
    THROWS(misuse, from.erase("k"));
    THROWS(misuse, from.erase(cf, "k"));
    THROWS(misuse, from.count());
    THROWS(misuse, from.clear());
    THROWS(misuse, from.commit());
    to.put("k", "v");
    from = std::move(to);
    from.commit();
    CHECK(db.contains("k"));
    kvstore::transaction tx = db.begin();
    kvstore::transaction taken = std::move(tx);
    CHECK(!tx.is_open() && taken.is_open());
    THROWS(misuse, tx.commit());
    THROWS(misuse, tx.rollback());
    taken.rollback();
    kvstore::snapshot snapshot = db.snapshot();
    kvstore::snapshot kept = std::move(snapshot);
    THROWS(misuse, snapshot.end());
    kept.end();
}

SCENARIO(assigning_a_store_closes_the_old_one) {
    kvstore::store db("first.db");
    kvstore::config config;
    config.exclusive = true;
    db = kvstore::store("second.db", config);
    kvstore::store first("first.db", config); // it was closed, so it can be opened exclusively
    THROWS(busy, kvstore::store("second.db"));
    kvstore::store& self = db;
    db = std::move(self);
    db.put("key", "value");
    kvstore::family cf = db.create_family("a");
    cf = db.create_family("b");
    db.drop_family("a"); // its handle was closed
    CHECK(cf.name() == "b");
}

SCENARIO(objects_follow_their_store_when_it_is_moved) {
    check::timed_store s;
    kvstore::family cf = s.db.create_family("family");
    kvstore::batch batch = s.db.batch();
    auto tx = s.db.begin();
    kvstore::store moved = std::move(s.db);
    cf.put("key", "value", 5s);
    CHECK(cf.ttl("key")->duration() == 5s); // by the clock set before the move
    tx.commit();
    batch.put(cf, "key", "value", 6s);
    batch.commit();
    CHECK(moved.family("family").ttl("key")->duration() == 6s);
}
