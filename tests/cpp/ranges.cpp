// Ranges of stores and families in the standard library: C++17 algorithms, C++20 ranges and views, the
// lifetime of views and iterators, and the visibility of writes.
#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>
#if __cplusplus >= 202002L
#include <ranges>
#endif

#include "check.hpp"

using namespace std::chrono_literals;
using at_entry = kvstore::basic_iterator<kvstore::entry>;
using at_key = kvstore::basic_iterator<kvstore::key_view>;
using at_value = kvstore::basic_iterator<kvstore::value_view>;

namespace {

// Returns the n-th key in key order.
std::string nth(int n) {
    std::string digits = std::to_string(n);
    return "key:" + std::string(5 - digits.size(), '0') + digits;
}

void fill_in_order(kvstore::store& db, int rows) {
    db.transaction([&] {
        for (int n = 0; n < rows; n++) {
            db.put(nth(n), "value of " + nth(n));
        }
    });
}

template <class Iterator>
constexpr bool is_input_iterator_of_cpp17 =
    std::is_same_v<typename std::iterator_traits<Iterator>::iterator_category, std::input_iterator_tag> &&
    std::is_copy_constructible_v<Iterator> && std::is_copy_assignable_v<Iterator> &&
    std::is_default_constructible_v<Iterator> && std::is_nothrow_destructible_v<Iterator> &&
    std::is_same_v<decltype(++std::declval<Iterator&>()), Iterator&> &&
    std::is_same_v<decltype(*std::declval<Iterator&>()), typename std::iterator_traits<Iterator>::reference> &&
    std::is_same_v<decltype(std::declval<Iterator&>().operator->()), typename std::iterator_traits<Iterator>::pointer> &&
    std::is_convertible_v<decltype(std::declval<Iterator&>() == std::declval<Iterator&>()), bool> &&
    std::is_convertible_v<decltype(*std::declval<Iterator&>()++), typename std::iterator_traits<Iterator>::value_type>;

} // namespace

SCENARIO(cpp17_algorithms_accept_ranges) {
    static_assert(is_input_iterator_of_cpp17<at_entry>);
    static_assert(is_input_iterator_of_cpp17<at_key>);
    static_assert(is_input_iterator_of_cpp17<at_value>);
    kvstore::store db(":memory:");
    fill_in_order(db, 1000);
    db.put("other", "x");

    auto items = db.items("key:");
    const std::vector all(items.begin(), items.end());
    static_assert(std::is_same_v<decltype(all), const std::vector<kvstore::owned_entry>>);
    CHECK(all.size() == 1000 && all[999].key == nth(999) && all[999].value == "value of " + nth(999));

    auto keys = db.keys("key:0001");
    const std::set<std::string> some(keys.begin(), keys.end());
    CHECK(some.size() == 10 && *some.begin() == nth(10));
    auto again = db.keys("key:0001");
    const std::vector ordered(again.begin(), again.end());
    static_assert(std::is_same_v<decltype(ordered), const std::vector<std::string>>);
    CHECK(std::equal(some.begin(), some.end(), ordered.begin(), ordered.end()));

    CHECK(std::distance(db.items().begin(), db.end()) == 1001);
    CHECK(std::count_if(db.items().begin(), db.end(), [](const kvstore::entry& e) { return e.value.size() > 1; }) == 1000);
    CHECK(std::all_of(db.items().begin(), db.end(), [](auto& e) { return !e.key.empty(); }));
    const auto found = std::find_if(db.items().begin(), db.end(), [](auto& e) { return e.value == "x"; });
    CHECK(found != db.end() && found->key == "other" && (*found).value == "x");
    CHECK(std::find(db.items().begin(), db.end(), kvstore::entry{"other", "y"}) == db.end());
    const std::size_t bytes = std::accumulate(db.items().begin(), db.end(), std::size_t{0},
                                              [](std::size_t sum, const kvstore::entry& e) { return sum + e.key.size(); });
    CHECK(bytes == 9 * 1000 + 5);
    std::vector<kvstore::owned_entry> copied;
    std::copy(db.items().begin(), db.end(), std::back_inserter(copied));
    CHECK(copied.size() == 1001 && copied.back().key == "other");
    CHECK(std::equal(db.items().begin(), db.end(), copied.begin(), copied.end()));
    CHECK(kvstore::entry(copied[0]) != copied[1]);
}

SCENARIO(map_is_constructed_from_a_range) {
    kvstore::store db(":memory:");
    fill_in_order(db, 300);
    const std::map<std::string, std::string> map(db.items().begin(), db.end());
    CHECK(map.size() == 300 && map.at(nth(299)) == "value of " + nth(299));
    const std::vector<std::pair<std::string, std::string>> pairs(db.items().begin(), db.end());
    CHECK(pairs.size() == 300 && pairs[7].first == nth(7));
    std::map<std::string, std::string> inserted;
    inserted.insert(db.items().begin(), db.end());
    CHECK(inserted == map);
}

SCENARIO(key_view_converts_to_string) {
    kvstore::store db(":memory:");
    fill_in_order(db, 100);
    std::map<std::string, int> seen;
    for (auto key : db.keys()) {
        const std::string copy = key;
        const std::string_view view = key;
        CHECK(copy == key && key == view && key != "other" && key < "l" && key.size() == 9);
        CHECK(db.get(key) == "value of " + copy);
        seen[key]++;
        db.erase(key);
    }
    CHECK(seen.size() == 100 && db.count() == 0);
    fill_in_order(db, 2);
    std::string joined("begin");
    for (std::string key : db.keys()) {
        joined += std::move(key);
    }
    auto keys = db.keys();
    joined.append(*keys.begin());
    CHECK(joined == "begin" + nth(0) + nth(1) + nth(0));
    std::vector<std::string> unique;
    std::unique_copy(db.keys().begin(), at_key(), std::back_inserter(unique)); // stores the element it compares with
    CHECK((unique == std::vector<std::string>{nth(0), nth(1)}));
#if defined(__cpp_lib_format)
    CHECK(std::format("{:>12}|", *db.keys().begin()) == "   " + nth(0) + "|");
    CHECK(std::format("{}", *db.values(nth(0)).begin()) == "value of " + nth(0));
#endif
}

SCENARIO(stored_entries_own_their_bytes) {
    std::vector<kvstore::owned_entry> kept;
    std::string last;
    {
        kvstore::store db(":memory:");
        fill_in_order(db, 500);
        kept.assign(db.items().begin(), db.end());
        auto it = db.items().begin();
        const auto left = it++;
        CHECK(it->key == nth(1) && (*left).key == nth(0) && (*left).value == "value of " + nth(0));
        CHECK((*it++).key == nth(1) && it->key == nth(2));
        auto keys = db.keys();
        auto at = keys.begin();
        last = *at++;
        db.clear();
    }
    CHECK(last == nth(0));
    for (int n = 0; n < 500; n++) {
        const auto& [key, value] = kept[static_cast<std::size_t>(n)];
        CHECK(key == nth(n) && value == "value of " + nth(n));
    }
}

SCENARIO(iteration_continues_without_its_source) {
    check::timed_store s;
    fill_in_order(s.db, 3);
    s.db.put(nth(1), "gone", 1s);
    s.time.advance(1s);
    std::string seen;
    for (auto [key, value] : s.db.items()) {
        CHECK(value.substr(0, 9) == "value of ");
        seen.append(key).append(" ");
    }
    CHECK(seen == nth(0) + " " + nth(2) + " ");
    const kvstore::family cf = s.db.create_family("family");
    CHECK(cf.items().begin() == cf.end());
    s.db.family("family").put("only", "one");
    CHECK(std::distance(cf.items().begin(), cf.end()) == 1 && cf.items().begin()->key == "only");
    std::size_t steps = 0;
    for (auto& [key, value] : s.db.family("family").items("o")) { // the family and the cursor are destroyed by then
        CHECK(key == "only" && value == "one");
        steps++;
    }
    CHECK(steps == 1);
}

SCENARIO(find_returns_iterator_at_live_key_or_end) {
    check::timed_store s;
    fill_in_order(s.db, 100);
    CHECK(s.db.contains(nth(50)) && !s.db.contains("key:"));
    const auto at = s.db.find(nth(50));
    CHECK(at != s.db.end() && at->key == nth(50) && at->value == "value of " + nth(50));
    CHECK(at.expires_at() == kvstore::never);
    CHECK(std::distance(at, s.db.end()) == 50);
    CHECK(s.db.find("key:") == s.db.end() && s.db.find("z") == s.db.end());
    THROWS(error, s.db.find(""));
    THROWS(error, s.db.find(std::string(65537, 'k')));
    s.db.put("z", "short", 1s);
    const auto dying = s.db.find("z");
    CHECK(dying->value == "short" && dying.expires_at().at() == s.time() + 1s);
    s.time.advance(1s);
    CHECK(s.db.find("z") == s.db.end() && !s.db.contains("z"));
    const kvstore::family cf = s.db.create_family("family");
    CHECK(cf.find(nth(50)) == cf.end() && !cf.contains(nth(50)));
    using namespace std::string_view_literals;
    s.db.put("a\0b"sv, "NUL");
    CHECK(s.db.find("a\0b"sv)->value == "NUL" && s.db.find("a") == s.db.end());
}

// Returns the rows that an iteration sees if rows 5, 60, 64 and 150 change, each in a different way, after the
// first row was seen.
template <class Range>
static std::set<std::string> seen_while_changing(check::timed_store& s, const Range& range) {
    fill_in_order(s.db, 200);
    s.db.put(nth(60), "dying", 1s);
    s.db.put(nth(64), "dying", 1s);
    std::set<std::string> seen;
    bool changed = false;
    range([&](std::string_view key) {
        seen.emplace(key);
        if (!std::exchange(changed, true)) {
            s.db.erase(nth(5));
            s.db.erase(nth(150));
            s.db.put(nth(1) + "new", "");
            s.db.put(nth(151) + "new", "");
            s.time.advance(1s);
        }
    });
    return seen;
}

SCENARIO(range_shows_state_at_fetch_and_steps_current_state) {
    check::timed_store s;
    auto seen = seen_while_changing(s, [&](auto see) {
        for (auto [key, value] : s.db.items()) {
            CHECK(!value.empty() || key == nth(151) + "new");
            see(key);
        }
    });
    CHECK(seen.count(nth(5)) && seen.count(nth(60)) && !seen.count(nth(1) + "new")); // among the first 64
    CHECK(!seen.count(nth(64)) && !seen.count(nth(150)) && seen.count(nth(151) + "new")); // fetched after the change
    CHECK(seen.size() == 200 - 2 + 1);

    check::timed_store fresh;
    seen = seen_while_changing(fresh, [&](auto see) {
        for (kvstore::cursor it = fresh.db.items(); !it.eof(); it.next()) see(it.key());
    });
    CHECK(!seen.count(nth(5)) && !seen.count(nth(60)) && seen.count(nth(1) + "new"));
    CHECK(!seen.count(nth(64)) && !seen.count(nth(150)) && seen.count(nth(151) + "new"));
    CHECK(seen.size() == 200 - 4 + 2);
}

SCENARIO(iteration_reads_every_row_once_at_any_size) {
    kvstore::store db(":memory:");
    std::map<std::string, std::string> model;
    for (int n = 0; n < 300; n++) {
        const auto size = static_cast<std::size_t>(n % 7 == 0 ? n * 1000 : n);
        model[nth(n)] = std::string(size, static_cast<char>('a' + n % 26));
        db.put(nth(n), model[nth(n)]);
    }
    CHECK((std::map<std::string, std::string>(db.items().begin(), db.end()) == model));
    auto reverse = db.items("key:", kvstore::direction::reverse);
    const std::vector back(reverse.begin(), reverse.end());
    CHECK(std::equal(back.rbegin(), back.rend(), model.begin(), model.end(), [](const auto& a, const auto& b) {
        return a.key == b.first && a.value == b.second;
    }));
    auto rows = db.range(nth(100), nth(200), kvstore::range_flags::keys_only);
    CHECK(std::count_if(rows.begin(), rows.end(), [](auto& e) { return e.value.empty(); }) == 100);
}

SCENARIO(end_of_iteration_stays_the_end) {
    kvstore::store db(":memory:");
    fill_in_order(db, 2);
    auto items = db.items();
    auto at = items.begin();
    ++at;
    CHECK(at != items.end());
    ++at;
    CHECK(at == items.end() && items.end() == at && at == items.begin());
    db.put("later", "");
    ++at;
    CHECK(at == items.end());
    THROWS(error, *at);
    THROWS(error, at->key);
    THROWS(error, at++);
    THROWS(error, at.expires_at());
    at_entry none;
    CHECK(none == items.end() && none == at);
    ++none;
    CHECK(none == at_entry());
    THROWS(error, *none);
    THROWS(error, none->value);
    THROWS(error, none++);
    THROWS(error, none.expires_at());
    THROWS(error, *db.end());
    THROWS(error, *db.items("none").begin());
    CHECK(db.items().begin() != db.items().begin()); // two cursors
    CHECK(items.first() && items.begin() != items.end() && at->key == nth(0)); // restarted, for all of its iterators
}

SCENARIO(iterators_outlive_cursor_and_throw_on_closed_store) {
    std::vector<at_entry> left;
    std::vector<at_key> keys;
    for (int n = 0; n < 100; n++) {
        kvstore::store db(":memory:");
        fill_in_order(db, 100);
        left.push_back(db.items().begin());
        left.push_back(db.items("key:").begin());
        left.push_back(db.find(nth(99)));
        keys.push_back(db.keys().begin());
        CHECK(left.back()->key == nth(99) && *keys.back() == nth(0));
    }
    kvstore::store another(":memory:");
    another.put("key", "value");
    for (at_entry& at : left) {
        THROWS(misuse, *at);
        THROWS(misuse, ++at);
        THROWS(misuse, at++);
        THROWS(misuse, at.expires_at());
    }
    THROWS(misuse, *keys[0]);
    THROWS(misuse, ++keys[0]);
    const at_entry unread = [] {
        kvstore::store db(":memory:");
        fill_in_order(db, 1);
        return db.items().begin();
    }();
    THROWS(misuse, unread == at_entry());
    at_entry from = another.items().begin();
    const at_entry to = std::move(from);
    CHECK(to->key == "key" && from == another.end());
    CHECK(another.items().begin()->value == "value");
}

SCENARIO(view_of_an_iterator_is_valid_until_next_step) {
    kvstore::store db(":memory:");
    fill_in_order(db, 100);
    auto at = db.items().begin();
    const auto [key, value] = *at;
    db.clear();
    db.put(nth(0), "another");
    db.close();
    CHECK(key == nth(0) && value == "value of " + nth(0));
}

SCENARIO(cursor_and_its_range_move_together) {
    kvstore::store db(":memory:");
    fill_in_order(db, 200);
    kvstore::cursor it = db.items();
    it.seek(nth(10));
    auto at = it.begin();
    CHECK(at->key == nth(10) && it.key() == nth(74)); // after the 64 that were fetched
    ++at;
    CHECK(it.seek(nth(100)) && at->key == nth(100)); // entries fetched before are discarded
    CHECK(!it.seek("z") && at == it.end());
    CHECK(it.first() && it.next() && at->key == nth(1));
    CHECK(it.fetch(3).size() == 3 && at->key == nth(68));
    kvstore::cursor moved = std::move(it);
    CHECK(at->key == nth(68) && moved.key() > nth(68));
    THROWS(misuse, it.begin());
    moved = db.items("none");
    CHECK(moved.begin() == moved.end() && (++at)->key == nth(69));
    for (auto [key, value] : moved) {
        CHECK(key.empty() && value.empty());
    }
}

SCENARIO(exception_in_an_algorithm_is_passed_on) {
    kvstore::store db(":memory:");
    fill_in_order(db, 100);
    bool caught = false;
    try {
        std::for_each(db.items().begin(), db.end(), [](const kvstore::entry& e) {
            if (e.key == nth(70)) throw std::out_of_range("enough");
        });
    } catch (const std::out_of_range&) {
        caught = true;
    }
    CHECK(caught);
    std::size_t steps = 0;
    THROWS(misuse, std::for_each(db.items().begin(), db.end(), [&](auto&) {
        steps++;
        db.close();
    }));
    CHECK(steps == 1);
}

SCENARIO(iteration_sees_its_transaction_and_continues_after_it) {
    kvstore::store db(":memory:");
    fill_in_order(db, 100);
    auto at = [&] {
        const auto open = db.begin();
        db.put("key:00000a", "in the transaction");
        auto here = db.items().begin();
        CHECK((++here)->value == "in the transaction");
        return here;
    }();
    int left = 0;
    for (; at != db.end(); ++at) left++;
    CHECK(left == 100); // the entries fetched before the rollback, and the rest
    CHECK(std::distance(db.items().begin(), db.end()) == 100);
}

SCENARIO(expiring_is_a_range) {
    check::timed_store s;
    for (int n = 0; n < 200; n++) {
        s.db.put(nth(n), "", (200 - n) * 1ms);
    }
    auto range = s.db.expiring(s.time(), kvstore::never);
    int n = 199;
    for (auto at = range.begin(); at != range.end(); ++at, --n) {
        CHECK(at->key == nth(n) && at.expires_at().at() == s.time() + (200 - n) * 1ms);
    }
    CHECK(n == -1);
}

SCENARIO(cpp20_ranges_and_views_accept_ranges) {
#if __cplusplus >= 202002L
    static_assert(std::input_iterator<at_entry> && std::input_iterator<at_key> && std::input_iterator<at_value>);
    static_assert(!std::forward_iterator<at_entry> && !std::forward_iterator<at_key>);
    static_assert(std::sentinel_for<at_entry, at_entry>);
    static_assert(std::same_as<std::iter_value_t<at_entry>, kvstore::owned_entry>);
    static_assert(std::same_as<std::iter_value_t<at_key>, std::string>);
    static_assert(std::same_as<std::iter_value_t<at_value>, std::string>);
    static_assert(std::ranges::input_range<kvstore::cursor> && std::ranges::common_range<kvstore::cursor>);
    static_assert(std::ranges::input_range<kvstore::key_range> && std::ranges::common_range<kvstore::key_range>);
    static_assert(std::ranges::borrowed_range<kvstore::cursor> && std::ranges::borrowed_range<kvstore::key_range>);
    static_assert(std::ranges::viewable_range<kvstore::cursor>);
    static_assert(std::ranges::input_range<kvstore::value_range> && std::ranges::borrowed_range<kvstore::value_range>);
    static_assert(std::ranges::input_range<const kvstore::family> && std::ranges::borrowed_range<kvstore::family>);
    static_assert(!std::ranges::range<kvstore::store>); // its begin() begins a transaction
    kvstore::store db(":memory:");
    fill_in_order(db, 1000);
    db.put("other", "x");
    CHECK(std::ranges::distance(db.items()) == 1001);
    CHECK(std::ranges::count_if(db.items(), [](const auto& e) { return e.key.starts_with("key:"); }) == 1000);
    CHECK(std::ranges::count_if(db.items("key:"), [](kvstore::entry e) { return e.value.ends_with("9"); }) == 100);
    const auto found = std::ranges::find_if(db.items(), [](const auto& e) { return e.value == "x"; });
    CHECK(found->key == "other"); // of a temporary range
    CHECK(*std::ranges::find(db.keys(), "other") == "other");
    const auto key_of = [](const auto& e) { return std::string_view(e.key); };
    CHECK(std::ranges::find(db.items(), "other", key_of)->value == "x");
    CHECK(*std::ranges::find(db.values(), "x") == "x" && std::ranges::count(db.values("key:"), "x") == 0);
    CHECK(std::ranges::equal(db.values("other"), std::vector<std::string>{"x"}));
    CHECK(std::ranges::distance(db.default_family()) == 1001);
    CHECK(std::ranges::is_sorted(std::vector<std::string>(db.keys().begin(), at_key())));
    std::vector<kvstore::owned_entry> copied;
    std::ranges::copy(db.items("key:0001"), std::back_inserter(copied));
    CHECK(copied.size() == 10 && copied[9].key == nth(19));

    std::string seen;
    auto odd = [](const kvstore::entry& e) { return (e.key.back() - '0') % 2 == 1; };
    for (const auto& key : db.items("key:") | std::views::filter(odd) | std::views::transform(&kvstore::entry::key) |
                               std::views::drop(40) | std::views::take(2)) {
        seen.append(key).append(" ");
    }
    CHECK(seen == nth(81) + " " + nth(83) + " ");
    auto before = db.items() | std::views::take_while([](const auto& e) { return e.key < nth(130); });
    CHECK(std::ranges::distance(before) == 130);
#if defined(__cpp_lib_ranges_to_container)
    const auto map = db.items() | std::ranges::to<std::map<std::string, std::string>>();
    CHECK(map.size() == 1001 && map.at("other") == "x");
    CHECK((db.keys("key:0000") | std::ranges::to<std::vector>()).size() == 10);
    CHECK((db.values("other") | std::ranges::to<std::vector>()) == std::vector<std::string>{"x"});
#endif
#endif
}
