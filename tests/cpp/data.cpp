// Keys and values of every supported type.
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <list>
#include <sstream>
#include <type_traits>
#if __cplusplus >= 202002L
#include <ranges>
#include <span>
#endif

#include "check.hpp"

SCENARIO(get_returns_what_was_put) {
    using namespace std::string_view_literals;
    kvstore::store db(":memory:");
    db.put("key", "value");
    CHECK(db.get("key") == "value");
    CHECK(db.get("missing") == std::nullopt);
    db.put("a\0b"sv, "c\0d"sv);
    CHECK(db.get("a\0b"sv) == std::string("c\0d", 3));
    CHECK(!db.get("a"));
    db.put("key", "other");
    CHECK(db.get("key") == "other");
}

SCENARIO(null_view_is_an_empty_value) {
    kvstore::store db(":memory:");
    db.put("null", std::string_view());
    db.put("empty", "");
    db.put("default", kvstore::bytes_view());
    db.put("pointer", kvstore::bytes_view(nullptr, 0));
    for (const char* key : {"null", "empty", "default", "pointer"}) {
        CHECK(db.get(key) == "");
        CHECK(db.compare_and_swap(key, std::string_view(), "x"));
    }
}

SCENARIO(keys_and_values_convert_from_any_byte_type) {
    kvstore::store db(":memory:");
    const std::string string = "key";
    const std::vector<std::byte> bytes{std::byte{'k'}, std::byte{'e'}, std::byte{'y'}};
    const std::array<unsigned char, 3> array{'k', 'e', 'y'};
    const unsigned char c_array[] = {'k', 'e', 'y'};
    std::vector<char> chars{'k', 'e', 'y'};
    char writable[] = "key";
    char* pointer = writable;
    db.put(string, bytes);
    CHECK(db.get(bytes) == "key");
    CHECK(db.get(array) == "key");
    CHECK(db.get(c_array) == "key");
    CHECK(db.get(chars) == "key");
    CHECK(db.get(writable) == "key");
    CHECK(db.get(pointer) == "key");
    CHECK(db.get(std::string_view(string)) == "key");
    CHECK(db.get(std::string("key")) == "key");
    CHECK(db.get(kvstore::bytes_view(&bytes[0], 3)) == "key");
    CHECK(db.get(*db.get_buffer("key")) == "key");
#if __cplusplus >= 202002L
    CHECK(db.get(std::span<const std::byte>(bytes)) == "key");
    CHECK(db.get(std::span<const std::byte, 3>(bytes)) == "key");
    CHECK(db.get(std::as_bytes(std::span(string))) == "key");
    CHECK(db.get(std::span(chars)) == "key");
#endif
    static_assert(!std::is_convertible_v<std::vector<int>, kvstore::bytes_view>);
    static_assert(!std::is_convertible_v<int, kvstore::bytes_view>);
    static_assert(!std::is_constructible_v<kvstore::bytes_view, std::nullptr_t>);
}

SCENARIO(get_into_fills_buffer_and_returns_full_length) {
    kvstore::store db(":memory:");
    db.put("key", "0123456789");
    char buffer[16] = "----------";
    CHECK(db.get_into("key", buffer, 4) == std::size_t{10});
    CHECK(std::memcmp(buffer, "0123------", 10) == 0);
    CHECK(db.get_into("key", buffer, sizeof buffer) == std::size_t{10});
    CHECK(std::memcmp(buffer, "0123456789", 10) == 0);
    CHECK(db.get_into("key", nullptr, 0) == std::size_t{10});
    CHECK(db.get_into("missing", buffer, sizeof buffer) == std::nullopt);
    std::array<std::byte, 4> bytes{};
    CHECK(db.get_into("key", bytes) == std::size_t{10});
    CHECK(bytes[3] == std::byte{'3'});
    std::vector<unsigned char> vector(12, '-');
    CHECK(db.get_into("key", vector) == std::size_t{10} && vector[9] == '9' && vector[10] == '-');
    CHECK(db.get_into("missing", vector) == std::nullopt);
    CHECK(db.get_into("key", buffer) == std::size_t{10});
#if __cplusplus >= 202002L
    bytes = {};
    CHECK(db.get_into("key", std::span(bytes).first(2)) == std::size_t{10});
    CHECK(bytes[1] == std::byte{'1'} && bytes[2] == std::byte{0});
    CHECK(db.get_into("key", std::span<std::byte>()) == std::size_t{10});
#endif
}

SCENARIO(get_returns_any_container_of_bytes) {
    kvstore::store db(":memory:");
    const std::vector<std::byte> bytes{std::byte{0}, std::byte{0xff}, std::byte{7}};
    db.put(bytes, bytes);
    CHECK(db.get<std::vector<std::byte>>(bytes) == bytes);
    CHECK((db.get<std::vector<unsigned char>>(bytes) == std::vector<unsigned char>{0, 0xff, 7}));
    CHECK(db.get<std::vector<char>>(bytes)->size() == 3);
    CHECK((db.get(bytes) == std::string("\0\xff\7", 3)));
    CHECK(db.get<std::vector<std::byte>>("missing") == std::nullopt);
    db.put("empty", "");
    CHECK(db.get<std::vector<std::byte>>("empty")->empty());
}

SCENARIO(get_buffer_returns_library_memory_and_frees_it) {
    kvstore::store db(":memory:");
    db.put("key", "value");
    auto value = db.get_buffer("key");
    CHECK(value && value->view() == "value" && value->size() == 5 && value->data()[5] == '\0');
    kvstore::buffer moved = *std::move(value);
    CHECK(std::string_view(moved) == "value");
    CHECK(value->size() == 0 && value->view().empty());
    CHECK(!db.get_buffer("missing"));
}

SCENARIO(get_many_returns_values_in_key_order) {
    kvstore::store db(":memory:");
    db.put("a", "1");
    db.put("c", "");
    const auto listed = db.get_many({"a", "b", "c"});
    CHECK(listed.size() == 3 && listed[0] == "1" && !listed[1] && listed[2] == "");
    const std::vector<std::string> keys{"c", "a"};
    const auto of_vector = db.get_many(keys);
    CHECK(of_vector.size() == 2 && of_vector[0] == "" && of_vector[1] == "1");
    CHECK(db.get_many(std::vector<std::string>()).empty());
    THROWS(error, db.get_many({"a", ""}));
}

SCENARIO(erase_returns_whether_the_key_existed) {
    kvstore::store db(":memory:");
    db.put("key", "value");
    CHECK(db.contains("key"));
    CHECK(db.erase("key"));
    CHECK(!db.erase("key"));
    CHECK(!db.contains("key"));
}

SCENARIO(erase_many_returns_number_of_live_keys) {
    kvstore::store db(":memory:");
    for (const char* key : {"a", "b", "c", "d"}) {
        db.put(key, "1");
    }
    CHECK(db.erase_many({"a", "missing", "a"}) == 1);
    const std::vector<std::string> keys{"d", "b"};
    CHECK(db.erase_many(keys) == 2);
    CHECK(db.erase_many(std::vector<std::string>()) == 0);
    THROWS(error, db.erase_many({"c", ""}));
    CHECK(db.count() == 1 && db.contains("c"));
}

namespace {

// A key too long for the small-string optimisation.
std::string long_key(int n) { return "a key that is longer than what a string holds in itself: " + std::to_string(n); }

// Single-pass iterator that counts and returns `Make(number)`.
template <class Make>
struct counting {
    using iterator_category = std::input_iterator_tag;
    using reference = std::invoke_result_t<Make&, int>;
    using value_type = std::decay_t<reference>;
    using pointer = void;
    using difference_type = std::ptrdiff_t;

    reference operator*() const { return make(n); }
    counting& operator++() {
        n++;
        return *this;
    }
    bool operator!=(const counting& other) const { return n != other.n; }

    mutable Make make;
    int n;
};

template <class Make>
struct counted {
    counting<Make> begin() const { return {make, 1}; }
    counting<Make> end() const { return {make, past}; }

    Make make;
    int past;
};
template <class Make>
counted(Make, int) -> counted<Make>;

// Returns every key in the same memory, overwriting the previous one.
template <class Shown>
struct in_one_place {
    Shown operator()(int n) {
        last = long_key(n);
        return last;
    }

    std::string last;
};

// Owns its bytes and is neither copyable nor movable.
struct pinned {
    explicit pinned(int n) : bytes(long_key(n)) {}
    pinned(const pinned&) = delete;
    pinned& operator=(const pinned&) = delete;
    operator std::string_view() const noexcept { return bytes; }

    std::string bytes;
};

// Returns whether a read and a deletion see the keys 1, 2 and 3 in a range.
template <class Keys>
bool are_1_2_3(const Keys& keys, const Keys& again) {
    kvstore::store db(":memory:");
    for (int n = 1; n <= 4; n++) {
        db.put(long_key(n), std::to_string(n));
    }
    const auto got = db.get_many(keys);
    const bool read = got.size() == 3 && got[0] == "1" && got[1] == "2" && got[2] == "3";
    return read && db.erase_many(again) == 3 && db.count() == 1 && db.contains(long_key(4));
}
template <class Keys>
bool are_1_2_3(const Keys& keys) {
    return are_1_2_3(keys, keys);
}

} // namespace

SCENARIO(generated_keys_are_kept_for_the_call) {
    CHECK(are_1_2_3(counted{[](int n) { return long_key(n); }, 4}));
    CHECK(are_1_2_3(counted{[](int n) -> const std::string { return long_key(n); }, 4}));
    CHECK(are_1_2_3(counted{[](int n) { return pinned(n); }, 4}));
    CHECK(are_1_2_3(counted{in_one_place<const std::string&>(), 4}));
    CHECK(are_1_2_3(counted{in_one_place<std::string_view>(), 4}));
    CHECK(are_1_2_3(counted{in_one_place<kvstore::bytes_view>(), 4}));
    CHECK(are_1_2_3(counted{[](int n) {
        const std::string key = long_key(n);
        return std::vector<unsigned char>(key.begin(), key.end());
    }, 4}));
    kvstore::store short_keys(":memory:"); // within the small-string optimisation
    for (int n = 1; n <= 100; n++) {
        short_keys.put(std::to_string(n), "");
    }
    CHECK(short_keys.erase_many(counted{[](int n) { return std::to_string(n); }, 100}) == 99);
    CHECK(short_keys.count() == 1 && short_keys.contains("100"));
#if __cplusplus >= 202002L
    const auto of = [](auto make) { return std::views::iota(1, 4) | std::views::transform(make); };
    CHECK(are_1_2_3(of([](int n) { return long_key(n); })));
    CHECK(are_1_2_3(of([](int n) -> const std::string { return long_key(n); })));
    CHECK(are_1_2_3(of([](int n) { return pinned(n); })));
    CHECK(are_1_2_3(of([](int n) {
        std::array<char, 58> key{};
        long_key(n).copy(key.data(), key.size());
        return key;
    })));
    kvstore::store values(":memory:");
    for (int n = 1; n < 4; n++) {
        values.put(std::to_string(n), long_key(n));
    }
    CHECK(are_1_2_3(of([&](int n) { return *values.get_buffer(std::to_string(n)); }))); // only moved
    const auto words = [](std::istream& in) {
        return std::ranges::subrange(std::istream_iterator<std::string>(in), std::istream_iterator<std::string>());
    };
    std::istringstream first("one two three");
    std::istringstream second("one two three");
    const auto words_of = words(first);
    kvstore::store db(":memory:");
    db.put("two", "2");
    CHECK(db.get_many(words_of)[1] == "2" && db.erase_many(words(second)) == 1);
#endif
}

SCENARIO(keys_of_a_cursor_are_kept_for_the_call) {
    struct key_range_from {
        kvstore::basic_iterator<kvstore::key_view> first;
        auto begin() const { return first; }
        auto end() const { return decltype(first)(); }
    };
    kvstore::store from(":memory:");
    kvstore::store to(":memory:");
    constexpr std::size_t rows = 3000; // more than one read-ahead
    from.transaction([&] {
        to.transaction([&] {
            for (int n = 0; n < static_cast<int>(rows); n++) {
                from.put(long_key(n), "");
                to.put(long_key(n), std::to_string(n));
            }
        });
    });
    to.put("other", "stays");
    auto keys = from.keys();
    const auto got = to.get_many(key_range_from{keys.begin()});
    auto again = from.keys();
    std::size_t n = 0;
    for (auto at = again.begin(); at != again.end(); ++at, ++n) {
        CHECK(got[n] && long_key(std::stoi(*got[n])) == *at);
    }
    CHECK(n == rows && got.size() == rows);
    auto all = from.keys();
    CHECK(to.erase_many(key_range_from{all.begin()}) == rows && to.count() == 1 && to.contains("other"));
#if __cplusplus >= 202002L
    auto range = from.keys();
    CHECK(from.erase_many(std::ranges::subrange(range.begin(), range.end())) == rows && from.count() == 0);
#endif
}

// Returns the pointers that C receives for the keys of a range.
template <class Keys>
static bool is_passed_as_it_is(const Keys& keys, const void* first) {
    return kvstore::detail::c_keys<Keys>(keys).data.at(0) == first;
}

SCENARIO(keys_that_outlive_the_call_are_not_copied) {
    const std::vector<std::string> strings{long_key(1), long_key(2)};
    const std::list<std::string_view> views{strings[0]};
    const std::vector<std::byte> bytes(60);
    const std::array<std::vector<std::byte>, 1> array{bytes};
    const char* const pointers[] = {strings[0].c_str()};
    const std::string c_array[] = {long_key(1)};
    const char texts[][4] = {"one", "two"};
    const std::initializer_list<kvstore::bytes_view> listed{strings[0]};
    CHECK(is_passed_as_it_is(strings, strings[0].data()));
    CHECK(is_passed_as_it_is(views, strings[0].data()));
    CHECK(is_passed_as_it_is(array, array[0].data()));
    CHECK(is_passed_as_it_is(pointers, pointers[0]));
    CHECK(is_passed_as_it_is(c_array, c_array[0].data()));
    CHECK(is_passed_as_it_is(texts, texts[0]));
    CHECK(is_passed_as_it_is(listed, strings[0].data()));
#if __cplusplus >= 202002L
    const auto shown_as = [&](auto what) { return strings | std::views::transform(what); };
    CHECK(is_passed_as_it_is(shown_as([](auto& key) { return std::string_view(key); }), strings[0].data()));
    CHECK(is_passed_as_it_is(shown_as([](auto& key) { return kvstore::bytes_view(key); }), strings[0].data()));
    CHECK(is_passed_as_it_is(shown_as([](auto& key) { return kvstore::key_view(key); }), strings[0].data()));
    CHECK(is_passed_as_it_is(shown_as([](auto& key) { return key.c_str(); }), strings[0].data()));
    CHECK(is_passed_as_it_is(shown_as([](auto& key) { return std::as_bytes(std::span(key)); }), strings[0].data()));
    CHECK(is_passed_as_it_is(shown_as([](auto& key) -> auto& { return key; }), strings[0].data()));
    CHECK(is_passed_as_it_is(strings | std::views::reverse, strings[1].data()));
#endif
}

SCENARIO(key_range_that_closes_the_store_gets_misuse) {
    for (const bool reading : {true, false}) {
        kvstore::store db(":memory:");
        const auto close = [&db](int n) {
            db.close();
            return long_key(n);
        };
        THROWS(misuse, reading ? db.get_many(counted{close, 3}).size() : db.erase_many(counted{close, 3}));
    }
}

SCENARIO(erase_range_and_clear_remove_all_keys_in_them) {
    kvstore::store db(":memory:");
    for (const char* key : {"a", "b", "c", "d"}) {
        db.put(key, key);
    }
    CHECK(db.erase_range("b", "d") == 2);
    CHECK(db.count() == 2 && db.contains("a") && db.contains("d"));
    CHECK(db.erase_range(std::nullopt, "b") == 1);
    db.put("e", "");
    db.clear();
    CHECK(db.count() == 0 && db.count_live() == 0);
}

SCENARIO(families_have_separate_keys) {
    kvstore::store db(":memory:");
    kvstore::family users = db.create_family("users");
    CHECK(users.name() == "users");
    users.put("key", "user");
    db.put("key", "default");
    CHECK(users.get("key") == "user");
    CHECK(db.get("key") == "default");
    CHECK(users.contains("key") && users.count() == 1 && users.count_live() == 1);
    char buffer[4];
    CHECK(users.get_into("key", buffer, sizeof buffer) == std::size_t{4});
    CHECK(users.erase("key") && !users.contains("key"));
    users.put("a", "");
    users.clear();
    CHECK(users.count() == 0);
    CHECK(db.default_family().get("key") == "default");
    CHECK(db.default_family().name() == "default");
}

SCENARIO(families_are_created_opened_listed_and_dropped) {
    kvstore::store db(":memory:");
    THROWS(notfound, db.family("b"));
    {
        auto b = db.family_or_create("b");
        auto again = db.family_or_create("b");
        auto a = db.create_family("a");
        auto opened = db.family("a");
        b.put("key", "value");
        CHECK(again.get("key") == "value");
        const std::string_view part = std::string_view("a and more").substr(0, 1);
        CHECK(db.family(part).name() == "a" && db.family_or_create(part).name() == "a");
        db.create_family(part.data()).put("key", "value"); // "a and more"
        db.drop_family(std::string_view("a and more"));
        CHECK((db.families() == std::vector<std::string>{"a", "b"}));
        THROWS(error, db.create_family("a"));
        THROWS(busy, db.drop_family("a"));
    }
    db.drop_family("a");
    CHECK((db.families() == std::vector<std::string>{"b"}));
    THROWS(notfound, db.drop_family("a"));
    THROWS(error, db.drop_family("default"));
    THROWS(error, db.family_or_create("__reserved"));
    THROWS(error, db.family_or_create(""));
    THROWS(error, db.create_family(std::string("a\0b", 3)));
}

SCENARIO(data_in_a_file_survives_reopening) {
    {
        kvstore::store db("again.db");
        db.put("key", "value");
    }
    kvstore::config config;
    config.read_only = true;
    config.busy_timeout = std::chrono::seconds(1);
    kvstore::store db("again.db", config);
    CHECK(db.get("key") == "value");
    THROWS(readonly, db.put("key", "other"));
}

SCENARIO(config_settings_reach_the_store) {
    kvstore::config config;
    config.max_value_size = 10;
    config.journal = kvstore::journal_mode::rollback;
    config.sync = kvstore::sync_level::off;
    config.cache_pages = 100;
    config.page_size = 512;
    config.checkpoint_every = 1;
    config.mmap_size = 0;
    config.hold_reads = false;
    kvstore::store db("settings.db", config);
    db.put("key", "0123456789");
    THROWS(error, db.put("key", "0123456789a"));
    CHECK(db.checkpoint().wal_frames == 0);
    config.page_size = 1000;
    THROWS(error, kvstore::store("bad.db", config));
    config = {};
    config.max_value_size = static_cast<std::size_t>(-1);
    THROWS(error, kvstore::store("bad.db", config));
    config = {};
    config.busy_timeout = std::chrono::milliseconds::max();
    config.exclusive = true;
    kvstore::store alone("alone.db", config);
    THROWS(busy, kvstore::store("alone.db"));
#if __cplusplus >= 202002L
    using namespace std::chrono_literals;
    kvstore::store designated("designated.db", {.sync = kvstore::sync_level::full, .busy_timeout = 5s});
    designated.put("key", "value");
#endif
}

SCENARIO(row_keys_keep_partitions_contiguous) {
    using namespace std::string_view_literals;
    kvstore::store db(":memory:");
    const std::string key = kvstore::row_key("user", "2024");
    db.put(key, "row");
    CHECK(db.get(kvstore::row_key("user", "2024")) == "row");
    CHECK(kvstore::row_key("user", "2024") < kvstore::row_key("user", "2025"));
    CHECK(kvstore::row_key("user", "\xff") < kvstore::row_key("user1", ""));
    CHECK(!kvstore::row_key("", "").empty());
    CHECK(kvstore::row_key("a\0"sv, "b") != kvstore::row_key("a", "\0b"sv));
    THROWS(error, kvstore::row_key(std::string(65000, 'p'), std::string(1000, 'c')));
}

SCENARIO(library_reports_its_versions) {
    const auto text = [](int number) { return std::to_string(number); };
    const std::string minor = text(KVSTORE_VERSION_MAJOR) + "." + text(KVSTORE_VERSION_MINOR);
    const std::string patch = minor + "." + text(KVSTORE_VERSION_PATCH);
    const bool encrypts = kvstore::engine().find("+sqlcipher") != std::string_view::npos;
    const std::string told = patch + (encrypts ? "+sqlcipher" : "");
    CHECK(kvstore::version() == told || kvstore::version() == told + "+remote");
    CHECK(kvstore::sqlite_version().substr(0, 2) == "3.");
    CHECK(kvstore::engine() == (encrypts ? "sql+sqlcipher" : "sql") ||
          kvstore::engine() == (encrypts ? "btree+sqlcipher" : "btree"));
    CHECK(kvstore::now().time_since_epoch() > std::chrono::hours(24 * 365 * 50));
}
