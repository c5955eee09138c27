// Errors: codes and texts, lengths beyond int, use after close, names with a NUL.
#include <climits>
#include <new>
#include <stdexcept>
#include <type_traits>

#include "check.hpp"

using namespace std::chrono_literals;

SCENARIO(error_has_code_text_and_retryable) {
    static_assert(std::is_base_of_v<std::runtime_error, kvstore::error>);
    static_assert(std::is_nothrow_copy_constructible_v<kvstore::error>);
    kvstore::store db(":memory:");
    try {
        db.put("", "value");
        CHECK(false);
    } catch (const std::runtime_error& base) {
        const auto& e = dynamic_cast<const kvstore::error&>(base);
        CHECK(e.code() == kvstore::errc::error && !e.retryable());
        CHECK(std::string_view(e.what()).find("key") != std::string_view::npos);
    }
    CHECK(static_cast<int>(kvstore::errc::full) == KVSTORE_FULL);
    CHECK(std::string_view(kvstore::describe(kvstore::errc::busy)) != kvstore::describe(kvstore::errc::full));
    CHECK(kvstore::error(kvstore::errc::locked, std::string("text")).retryable());
}

namespace {

// Returns the error that a call throws.
template <class Call>
kvstore::error thrown_by(const Call& call) {
    try {
        call();
    } catch (const kvstore::error& e) {
        return e;
    }
    check::fail(__FILE__, __LINE__, "the call threw nothing");
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

} // namespace

SCENARIO(error_has_hint_and_advice_in_cpp_words) {
    using kvstore::hint;
    kvstore::config config;
    config.max_value_size = 3;
    kvstore::store db("hints.db", config);
    kvstore::store other("hints.db");
    const auto busy = thrown_by([&] {
        auto tx = db.begin();
        db.put("key", "v");
        other.put("key", "w");
    });
    CHECK(busy.code() == kvstore::errc::busy && busy.hint() == hint::raise_busy_timeout);
    CHECK(contains(busy.what(), "config::busy_timeout"));
    CHECK(busy.what() == std::string(busy.reason()) + ": " + kvstore::describe(busy.hint()));
    const auto tx = db.begin();
    CHECK(thrown_by([&] { (void)db.begin(); }).hint() == hint::end_transaction);
    CHECK(thrown_by([&] { db.put("key", "long"); }).hint() == hint::raise_max_value_size);
    CHECK(thrown_by([&] { other.drop_family("default"); }).hint() == hint::clear_family);
    db.put("key", "v");
    CHECK(thrown_by([&] { (void)db.write_time("key"); }).hint() == hint::track_writes);
    const kvstore::error plain(kvstore::errc::error, "text");
    CHECK(plain.hint() == hint::none && plain.reason() == "text" && plain.what() == std::string("text"));
    const kvstore::error copy = busy;
    CHECK(copy.reason() == busy.reason() && copy.hint() == busy.hint());
}

SCENARIO(every_hint_has_advice_without_names_of_c_or_rust) {
    int known = 0;
    for (int number = 1; number < 1000; number++) {
        const std::string_view advice = kvstore::describe(static_cast<kvstore::hint>(number));
        known += advice.empty() ? 0 : 1;
        for (const char* foreign : {"kvstore_", "KV", "Config", "Store::", "busyTimeout"}) {
            CHECK(!contains(advice, foreign));
        }
    }
    CHECK(known >= static_cast<int>(kvstore::hint::give_ttl));
    CHECK(std::string_view(kvstore::describe(kvstore::hint::none)).empty());
}

SCENARIO(failed_open_reports_its_reason) {
    THROWS(cantopen, kvstore::store("no/such/folder/store.db"));
    THROWS(cantopen, kvstore::store("."));
    THROWS(error, kvstore::store(std::string("a\0b", 3)));
    kvstore::config config;
    config.read_only = true;
    THROWS(cantopen, kvstore::store("missing.db", config));
}

SCENARIO(length_beyond_int_is_rejected_not_truncated) {
    kvstore::store db(":memory:");
    kvstore::family cf = db.create_family("family");
    // Only the first byte is readable.
    const std::string_view huge("x", static_cast<std::size_t>(INT_MAX) + 1);
    const std::string_view wraps("x", static_cast<std::size_t>(UINT_MAX) + 2); // 1 as an int
    for (const std::string_view bytes : {huge, wraps}) {
        THROWS(error, db.put(bytes, "value"));
        THROWS(error, db.put("key", bytes));
        THROWS(error, db.get(bytes));
        THROWS(error, db.contains(bytes));
        THROWS(error, db.erase(bytes));
        THROWS(error, db.compare_and_swap("key", bytes, "value"));
        THROWS(error, db.get_many({kvstore::bytes_view(bytes)}));
        THROWS(error, db.erase_many({kvstore::bytes_view(bytes)}));
        THROWS(error, db.items(bytes));
        THROWS(error, db.range(bytes, std::nullopt));
        THROWS(error, db.range(std::nullopt, bytes));
        THROWS(error, db.rows(bytes));
        THROWS(error, db.erase_range(bytes, std::nullopt));
        THROWS(error, db.batch().put(bytes, "value"));
        THROWS(error, db.items().seek(bytes));
        THROWS(error, cf.put(bytes, "value"));
        THROWS(error, kvstore::row_key(bytes, "c"));
        THROWS(error, kvstore::raw_key(bytes));
        THROWS(error, kvstore::store::open_encrypted("huge.db", bytes));
        THROWS(error, db.reencrypt(bytes));
    }
    CHECK(db.count() == 0);
}

SCENARIO(objects_of_a_closed_store_throw_misuse) {
    kvstore::store db(":memory:");
    kvstore::family cf = db.create_family("family");
    kvstore::cursor it = db.items();
    kvstore::batch batch = db.batch();
    CHECK(db.native_handle() && cf.native_handle() && it.native_handle() && batch.native_handle());
    db.close();
    CHECK(!db.native_handle());
    db.close();
    db.close();
    THROWS(misuse, db.items());
    THROWS(misuse, db.find("key"));
    THROWS(misuse, db.contains("key"));
    THROWS(misuse, db.get("key"));
    THROWS(misuse, db.begin());
    THROWS(misuse, db.stats());
    THROWS(misuse, db.is_encrypted());
    THROWS(misuse, db.set_clock([] { return std::chrono::system_clock::now(); }));
    THROWS(misuse, cf.put("key", "value", 5s));
    THROWS(misuse, cf.name());
    THROWS(misuse, it.eof());
    THROWS(misuse, it.first());
    THROWS(misuse, it.begin());
    THROWS(misuse, it.fetch(1));
    THROWS(misuse, batch.count());
    try {
        (void)cf.get("key");
        CHECK(false);
    } catch (const kvstore::error& e) {
        CHECK(std::string_view(e.what()) == "the store is closed");
    }
}

SCENARIO(objects_may_outlive_their_store) {
    std::vector<kvstore::family> families;
    std::vector<kvstore::cursor> iterators;
    std::vector<kvstore::batch> batches;
    std::vector<kvstore::transaction> transactions;
    for (int i = 0; i < 100; i++) { // more than the closed handles that are kept before reuse
        check::timed_store s;
        families.push_back(s.db.create_family("family"));
        iterators.push_back(s.db.items());
        batches.push_back(s.db.batch());
        transactions.push_back(s.db.begin());
    }
    kvstore::store another(":memory:");
    another.put("key", "value");
    THROWS(misuse, families[0].put("key", "value", 1s));
    THROWS(misuse, iterators[0].first());
    THROWS(misuse, batches[0].commit());
    THROWS(misuse, transactions[0].commit());
    families.clear();
    iterators.clear();
    batches.clear();
    transactions.clear();
    CHECK(another.get("key") == "value");
}
