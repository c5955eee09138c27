// Iteration over items, keys, ranges, rows and expiring keys, by range-for and by cursors.
#include <map>

#include "check.hpp"

using namespace std::chrono_literals;
using kvstore::direction;
using kvstore::range_flags;

static void fill_with_users(kvstore::store& db) {
    for (const char* key : {"a", "user:1", "user:2", "user:3", "z"}) {
        db.put(key, std::string("value of ") + key);
    }
}

template <class Range>
static std::string keys_of(Range&& range) {
    std::string keys;
    for (auto [key, value] : range) {
        (void)value;
        keys.append(key).append(" ");
    }
    return keys;
}

SCENARIO(range_for_over_items_is_ordered) {
    kvstore::store db(":memory:");
    fill_with_users(db);
    std::string seen;
    for (auto [key, value] : db.items("user:")) {
        CHECK(value == "value of " + std::string(key));
        seen.append(key).append(" ");
    }
    CHECK(seen == "user:1 user:2 user:3 ");
    CHECK(keys_of(db.items()) == "a user:1 user:2 user:3 z ");
    CHECK(keys_of(db.items("user:", direction::reverse)) == "user:3 user:2 user:1 ");
    CHECK(keys_of(db.items("", direction::reverse)) == "z user:3 user:2 user:1 a ");
    CHECK(keys_of(db.items("none")).empty());
    const kvstore::store& reading = db;
    CHECK(keys_of(reading.items("z")) == "z ");
}

SCENARIO(range_for_over_a_family) {
    kvstore::store db(":memory:");
    kvstore::family cf = db.create_family("family");
    cf.put("a1", "");
    cf.put("a2", "");
    cf.put("b", "");
    CHECK(keys_of(cf.items()) == "a1 a2 b ");
    CHECK(keys_of(cf.items("a")) == "a1 a2 ");
    CHECK(keys_of(cf.items("a", direction::reverse)) == "a2 a1 ");
    CHECK(keys_of(cf.items({}, direction::reverse)) == "b a2 a1 ");
    std::string seen;
    for (auto [key, value] : cf) { // as of items()
        CHECK(value.empty());
        seen.append(key).append(" ");
    }
    CHECK(seen == "a1 a2 b ");
    CHECK((std::map<std::string, std::string>(cf.begin(), cf.end()).size()) == 3);
    for (auto& entry : db.default_family()) {
        CHECK(entry.key.empty());
    }
    db.close();
    THROWS(misuse, cf.begin());
}

SCENARIO(values_are_in_key_order) {
    kvstore::store db(":memory:");
    for (int n = 0; n < 200; n++) {
        db.put("b" + std::to_string(1000 + n), std::to_string(n));
    }
    db.put("a", "first");
    db.put("c", std::string(100000, 'l'));
    db.put("d", "gone", 0s);
    std::size_t rows = 0;
    std::size_t bytes = 0;
    for (std::string_view value : db.values()) {
        rows++;
        bytes += value.size();
    }
    CHECK(rows == 202 && bytes == 10 + 2 * 90 + 3 * 100 + 5 + 100000);
    int sum = 0;
    for (std::string value : db.values("b")) { // a copy
        sum += std::stoi(value);
    }
    CHECK(sum == 199 * 200 / 2);
    auto backwards = db.values("b", direction::reverse);
    const std::vector reversed(backwards.begin(), backwards.end());
    static_assert(std::is_same_v<decltype(reversed), const std::vector<std::string>>);
    CHECK(reversed.size() == 200 && reversed.front() == "199" && reversed.back() == "0");
    const kvstore::family cf = db.create_family("family");
    auto none = cf.values();
    CHECK(none.begin() == none.end());
    db.close();
    THROWS(misuse, db.values());
    THROWS(misuse, backwards.begin());
}

SCENARIO(keys_end_with_their_prefix_and_read_no_values) {
    kvstore::store db(":memory:");
    fill_with_users(db);
    db.put("\xff", "1");
    db.put("\xff\xff", "2");
    db.put("user;", "after the prefix");
    const auto joined = [](kvstore::key_range range) {
        std::string all;
        for (std::string_view key : range) {
            all.append(key).append(" ");
        }
        return all;
    };
    CHECK(joined(db.keys("user:")) == "user:1 user:2 user:3 ");
    CHECK(joined(db.keys("user:", direction::reverse)) == "user:3 user:2 user:1 ");
    CHECK(joined(db.keys("\xff")) == "\xff \xff\xff ");
    CHECK(joined(db.keys("\xff\xff")) == "\xff\xff ");
    CHECK(joined(db.keys("z")) == "z ");
    CHECK(joined(db.keys()) == "a user:1 user:2 user:3 user; z \xff \xff\xff ");
}

SCENARIO(range_includes_lower_excludes_upper_by_default) {
    kvstore::store db(":memory:");
    for (const char* key : {"a", "b", "c", "d"}) {
        db.put(key, key);
    }
    CHECK(keys_of(db.range("a", "c")) == "a b ");
    CHECK(keys_of(db.range("a", "c", range_flags::closed)) == "a b c ");
    CHECK(keys_of(db.range("a", "c", range_flags::open | range_flags::closed)) == "b c ");
    CHECK(keys_of(db.range("b", std::nullopt)) == "b c d ");
    CHECK(keys_of(db.range({}, "b")) == "a ");
    CHECK(keys_of(db.range({}, {}, range_flags::reverse)) == "d c b a ");
    CHECK(keys_of(db.range("c", "a")).empty());
    CHECK(keys_of(db.range({}, "")).empty()); // "" is a bound, not unbounded
    CHECK(keys_of(db.range({}, std::string_view())).empty());
    for (auto [key, value] : db.range({}, {}, range_flags::keys_only)) {
        CHECK(!key.empty() && value.empty());
    }
    kvstore::cursor it = db.range({}, {}, range_flags::keys_only);
    THROWS(error, it.value());
}

SCENARIO(rows_iterate_over_one_partition) {
    kvstore::store db(":memory:");
    for (const char* row : {"1", "2", "3"}) {
        db.put(kvstore::row_key("p", row), row);
        db.put(kvstore::row_key("p2", row), "another's");
    }
    CHECK(keys_of(db.rows("p")) == "1 2 3 ");
    CHECK(keys_of(db.rows("p", "2")) == "2 3 ");
    CHECK(keys_of(db.rows("p", "1", "3")) == "1 2 ");
    CHECK(keys_of(db.rows("p", {}, "3", range_flags::closed | range_flags::reverse)) == "3 2 1 ");
    kvstore::cursor it = db.rows("p");
    CHECK(it.seek("2") && it.value() == "2");
}

SCENARIO(expiring_is_in_order_of_expiry) {
    check::timed_store s;
    s.db.put("c", "", 1s);
    s.db.put("a", "", 2s);
    s.db.put("b", "", 3s);
    s.db.put("never", "");
    const kvstore::time_point now = s.time();
    CHECK(keys_of(s.db.expiring(now, now + 1h)) == "c a b ");
    CHECK(keys_of(s.db.expiring(now + 2s, now + 3s)) == "a ");
    CHECK(keys_of(s.db.expiring(now + 1s + 1us, now + 2s + 1us)) == "a ");
    CHECK(keys_of(s.db.expiring(now + 2s, kvstore::never)) == "a b ");
    s.db.put("last", "", std::chrono::hours::max()); // the last representable expiry time
    CHECK(keys_of(s.db.expiring(now + 3s, kvstore::never)) == "b last ");
    CHECK(s.db.erase("last"));
    s.time.advance(1s);
    kvstore::cursor it = s.db.expiring(kvstore::time_point(), now + 2s);
    CHECK(it.key() == "c" && it.expires_at().at() == now + 1s);
    CHECK(!it.next());
    THROWS(error, it.seek("a"));
}

SCENARIO(fetch_returns_several_entries) {
    check::timed_store s;
    fill_with_users(s.db);
    s.db.put("b", "", 1s);
    kvstore::cursor it = s.db.items();
    CHECK(it.fetch(0).empty() && it.key() == "a");
    const auto first = it.fetch(2);
    CHECK(first.size() == 2 && first[0].key == "a" && first[0].expires_at == kvstore::never);
    CHECK(first[1].key == "b" && first[1].value.empty() && first[1].expires_at.at() == s.time() + 1s);
    std::string seen = "a b ";
    for (auto some = it.fetch(3); !some.empty(); some = it.fetch(3)) {
        for (const kvstore::fetched_entry& one : some) seen.append(one.key).append(" ");
    }
    CHECK(it.eof() && seen == keys_of(s.db.items()));
    kvstore::cursor keys = s.db.range({}, {}, range_flags::keys_only);
    for (const auto& one : keys.fetch(1'000'000)) CHECK(!one.key.empty() && one.value.empty());
    CHECK(keys.eof());
}

SCENARIO(cursor_moves_in_both_directions) {
    kvstore::store db(":memory:");
    fill_with_users(db);
    kvstore::cursor it = db.items();
    CHECK(!it.eof() && it.key() == "a" && it.expires_at() == kvstore::never);
    CHECK(it.seek("user:2") && it.key() == "user:2" && it.value() == "value of user:2");
    CHECK(it.seek("user:25") && it.key() == "user:3");
    CHECK(it.next() && it.key() == "z");
    CHECK(!it.next() && it.eof());
    THROWS(error, it.key());
    THROWS(error, it.value());
    THROWS(error, it.expires_at());
    CHECK(it.first() && it.key() == "a");
    THROWS(error, it.last());
    THROWS(error, it.prev());
    THROWS(error, it.seek(""));
    kvstore::cursor reverse = db.items({}, direction::reverse);
    CHECK(reverse.key() == "z" && reverse.prev() && reverse.key() == "user:3");
    CHECK(reverse.seek("user:15") && reverse.key() == "user:1");
    CHECK(reverse.last() && reverse.key() == "z");
}

SCENARIO(range_begins_at_the_cursor) {
    kvstore::store db(":memory:");
    fill_with_users(db);
    kvstore::cursor it = db.items();
    it.seek("user:3");
    CHECK(keys_of(it) == "user:3 z ");
    CHECK(it.eof());
    kvstore::cursor moved = std::move(it);
    CHECK(moved.first());
    CHECK(keys_of(moved) == "a user:1 user:2 user:3 z ");
}

SCENARIO(writing_and_erasing_during_iteration) {
    kvstore::store db(":memory:");
    fill_with_users(db);
    for (auto [key, value] : db.items("user:")) {
        (void)value;
        db.erase(std::string(key));
    }
    CHECK(keys_of(db.items()) == "a z ");
}

SCENARIO(error_during_iteration_is_an_exception) {
    kvstore::store db(":memory:");
    fill_with_users(db);
    kvstore::cursor it = db.items();
    std::size_t steps = 0;
    bool thrown = false;
    try {
        for (auto [key, value] : it) {
            CHECK(!key.empty() && !value.empty());
            steps++;
            db.close();
        }
    } catch (const kvstore::error& e) {
        thrown = e.code() == kvstore::errc::misuse;
    }
    CHECK(thrown && steps == 1);
    THROWS(misuse, db.items());
}

SCENARIO(objects_are_small) {
    static_assert(sizeof(kvstore::cursor) <= 4 * sizeof(void*));
    static_assert(sizeof(kvstore::basic_iterator<kvstore::entry>) <= 2 * sizeof(void*));
    static_assert(sizeof(kvstore::key_range) == sizeof(kvstore::cursor));
    static_assert(sizeof(kvstore::value_range) == sizeof(kvstore::cursor));
    static_assert(sizeof(kvstore::store) <= 3 * sizeof(void*));
    static_assert(sizeof(kvstore::family) <= 3 * sizeof(void*));
    static_assert(sizeof(kvstore::batch) <= 3 * sizeof(void*));
    static_assert(sizeof(kvstore::transaction) <= 2 * sizeof(void*));
    static_assert(sizeof(kvstore::buffer) <= 2 * sizeof(void*));
    static_assert(sizeof(kvstore::bytes_view) == sizeof(std::string_view));
    static_assert(sizeof(kvstore::expiry) <= 16);
}
