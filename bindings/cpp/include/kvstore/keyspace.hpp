/// @file
/// What a store (by its default family) and a family have in common: reading, writing, expiry, walks.
#ifndef KVSTORE_KEYSPACE_HPP
#define KVSTORE_KEYSPACE_HPP

#include <kvstore.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "bytes.hpp"
#include "error.hpp"
#include "iterator.hpp"
#include "session.hpp"
#include "time.hpp"

namespace kvstore {

/// A bound of a range; `std::nullopt` is open.
using bound = std::optional<bytes_view>;

/// A value, and what is left of its life.
struct value_with_ttl {
    std::string value; ///< The value.
    time_left ttl;     ///< What is left.
};

/// What a call did that changes when a key expires.
enum class change {
    missing,   ///< There is no such key, or it has expired.
    unchanged, ///< The key is there, but the condition did not hold, or there was nothing to change.
    changed,   ///< It changed.
};

/// On what condition keyspace::expire changes a key. A key without a TTL counts as expiring later than any
/// moment.
enum class expire_if : int {
    always = 0,                 ///< On none.
    no_ttl = KVSTORE_EXPIRE_NX, ///< The key has no TTL.
    ttl = KVSTORE_EXPIRE_XX,    ///< The key has a TTL.
    later = KVSTORE_EXPIRE_GT,  ///< The new end is later than the old one.
    earlier = KVSTORE_EXPIRE_LT ///< The new end is earlier than the old one.
};

/// How keyspace::put_with writes; at first: always, never expiring.
/// @code
/// db.put_with("job", "done", kvstore::put_options().if_present().keep_ttl());
/// @endcode
class put_options {
public:
    /// When the key is to end. Not together with default_ttl().
    put_options& expires(const lifespan& when) {
        life_ = when;
        return *this;
    }
    /// The family's default TTL instead, if it has one.
    put_options& default_ttl() noexcept { return add(KVSTORE_PUT_DEFAULT_TTL); }
    /// A live key keeps the TTL it has, also none; a new key gets the one given.
    put_options& keep_ttl() noexcept { return add(KVSTORE_PUT_KEEP_TTL); }
    /// Only if the key is missing or expired.
    put_options& if_absent() noexcept { return add(KVSTORE_PUT_IF_ABSENT); }
    /// Only if the key is alive.
    put_options& if_present() noexcept { return add(KVSTORE_PUT_IF_PRESENT); }

private:
    template <class Handle>
    friend class keyspace;

    put_options& add(int flag) noexcept {
        flags_ |= static_cast<std::uint32_t>(flag);
        return *this;
    }

    lifespan life_ = never;
    std::uint32_t flags_ = 0;
};

/// @cond
namespace detail {

/// The C functions that exist for stores and for families.
template <class Handle>
struct functions;

template <>
struct functions<KVStore> {
    static constexpr auto put = &kvstore_put;
    static constexpr auto put_ttl = &kvstore_put_ttl;
    static constexpr auto put_if_absent = &kvstore_put_if_absent;
    static constexpr auto get = &kvstore_get;
    static constexpr auto get_ttl = &kvstore_get_ttl;
    static constexpr auto exists = &kvstore_exists;
    static constexpr auto ttl_remaining = &kvstore_ttl_remaining;
    static constexpr auto erase = &kvstore_delete;
    static constexpr auto clear = &kvstore_clear;
    static constexpr auto count = &kvstore_count;
    static constexpr auto purge_expired = &kvstore_purge_expired;
    static constexpr auto next_expiry = &kvstore_next_expiry;
    static constexpr auto iterator = &kvstore_iterator_create;
    static constexpr auto reverse_iterator = &kvstore_reverse_iterator_create;
    static constexpr auto prefix_iterator = &kvstore_prefix_iterator_create;
    static constexpr auto reverse_prefix_iterator = &kvstore_reverse_prefix_iterator_create;
};

template <>
struct functions<KVColumnFamily> {
    static constexpr auto put = &kvstore_cf_put;
    static constexpr auto put_ttl = &kvstore_cf_put_ttl;
    static constexpr auto put_if_absent = &kvstore_cf_put_if_absent;
    static constexpr auto get = &kvstore_cf_get;
    static constexpr auto get_ttl = &kvstore_cf_get_ttl;
    static constexpr auto exists = &kvstore_cf_exists;
    static constexpr auto ttl_remaining = &kvstore_cf_ttl_remaining;
    static constexpr auto erase = &kvstore_cf_delete;
    static constexpr auto clear = &kvstore_cf_clear;
    static constexpr auto count = &kvstore_cf_count;
    static constexpr auto purge_expired = &kvstore_cf_purge_expired;
    static constexpr auto next_expiry = &kvstore_cf_next_expiry;
    static constexpr auto iterator = &kvstore_cf_iterator_create;
    static constexpr auto reverse_iterator = &kvstore_cf_reverse_iterator_create;
    static constexpr auto prefix_iterator = &kvstore_cf_prefix_iterator_create;
    static constexpr auto reverse_prefix_iterator = &kvstore_cf_reverse_prefix_iterator_create;
};

/// An argument as C takes it.
struct c_bytes {
    c_bytes(bytes_view bytes, const char* what) : data(bytes.data()), size(c_length(bytes.size(), what)) {}
    explicit c_bytes(const bound& bytes)
        : data(bytes ? bytes->data() : nullptr), size(bytes ? c_length(bytes->size(), "bound") : 0) {}

    const void* data;
    int size;
};

struct c_key : c_bytes {
    c_key(bytes_view key) : c_bytes(key, "key") {}
};

struct c_value : c_bytes {
    c_value(bytes_view value) : c_bytes(value, "value") {}
};

} // namespace detail
/// @endcond

/// The calls that a store and a family share; those of a store work on its default family.
///
/// A key is 1 to 65536 bytes, a value 0 bytes to the configured maximum; both are copied. Every call is
/// atomic: one transaction of its own, or part of the open one. May be used by several threads.
///
/// Beside what a call names, reading throws errc::ioerr, errc::nomem, errc::corrupt, errc::misuse, and
/// errc::busy (only in DELETE journal mode); errc::error for a key or value of a bad length. Writing throws
/// all these, and errc::busy (another handle is writing; only outside a transaction), errc::readonly and
/// errc::full. Nothing is changed then.
template <class Handle>
class keyspace {
    using call = detail::functions<Handle>;

public:
    /// @name Reading
    /// @{

    /// The value of a live key.
    [[nodiscard]] std::optional<std::string> get(bytes_view key) const {
        const std::optional<buffer> value = get_buffer(key);
        return value ? std::optional<std::string>(value->view()) : std::nullopt;
    }

    /// The value of a live key, in the library's memory: for large values, which get() would copy once more.
    [[nodiscard]] std::optional<buffer> get_buffer(bytes_view key) const {
        return read([&](const detail::c_key& k, void** value, int* n) {
            return call::get(handle(), k.data, k.size, value, n);
        }, key);
    }

    /// Reads a value into the caller's memory, without allocating: its first bytes, at most `capacity`.
    /// Answers its full length, also if that is more, or `nullopt` for a missing key.
    [[nodiscard]] std::optional<std::size_t> get_into(bytes_view key, void* buffer,
                                                      std::size_t capacity) const {
        const detail::session& session = usable();
        const detail::c_key k(key);
        const int room = capacity > static_cast<std::size_t>(INT_MAX) ? INT_MAX : static_cast<int>(capacity);
        int n = 0;
        if (!session.found(kvstore_cf_get_into(cf_, k.data, k.size, buffer, room, &n))) {
            return std::nullopt;
        }
        return static_cast<std::size_t>(n);
    }

#if __cplusplus >= 202002L
    /// The same.
    [[nodiscard]] std::optional<std::size_t> get_into(bytes_view key, std::span<std::byte> buffer) const {
        return get_into(key, buffer.data(), buffer.size());
    }
#endif

    /// The value of a live key, and what is left of its life.
    [[nodiscard]] std::optional<value_with_ttl> get_ttl(bytes_view key) const {
        std::int64_t left = 0;
        const std::optional<buffer> value = read([&](const detail::c_key& k, void** data, int* n) {
            return call::get_ttl(handle(), k.data, k.size, data, n, &left);
        }, key);
        if (!value) {
            return std::nullopt;
        }
        return value_with_ttl{std::string(value->view()), time_left_of(left)};
    }

    /// Reads several values from one snapshot, in the order of the keys: `nullopt` for each that is missing.
    /// `keys` is a range of anything a bytes_view can be made from.
    template <class Keys>
    [[nodiscard]] std::vector<std::optional<std::string>> get_many(const Keys& keys) const {
        const detail::session& session = usable();
        std::vector<const void*> data;
        std::vector<int> sizes;
        for (const auto& key : keys) {
            const detail::c_key k{bytes_view(key)};
            data.push_back(k.data);
            sizes.push_back(k.size);
        }
        const int count = detail::c_length(data.size(), "list of keys");
        std::vector<void*> values(data.size());
        std::vector<int> value_sizes(data.size());
        session.check(
            kvstore_cf_get_many(cf_, count, data.data(), sizes.data(), values.data(), value_sizes.data()));
        const free_all owner{values};
        std::vector<std::optional<std::string>> found(values.size());
        for (std::size_t i = 0; i < values.size(); i++) {
            if (values[i]) {
                const auto size = static_cast<std::size_t>(value_sizes[i]);
                found[i].emplace(static_cast<const char*>(values[i]), size);
            }
        }
        return found;
    }

    /// The same, of keys that are listed.
    [[nodiscard]] std::vector<std::optional<std::string>>
    get_many(std::initializer_list<bytes_view> keys) const {
        return get_many<std::initializer_list<bytes_view>>(keys);
    }

    /// Whether a key is there and alive.
    [[nodiscard]] bool exists(bytes_view key) const {
        const detail::session& session = usable();
        const detail::c_key k(key);
        int there = 0;
        session.check(call::exists(handle(), k.data, k.size, &there));
        return there != 0;
    }

    /// How many rows there are. Expired ones are included as long as nothing has removed them, and no get, contains
    /// or ttl of this store has met them. Reads the whole key tree.
    [[nodiscard]] std::uint64_t count() const {
        const detail::session& session = usable();
        std::int64_t n = 0;
        session.check(call::count(handle(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// How many keys are alive.
    [[nodiscard]] std::uint64_t count_live() const {
        const detail::session& session = usable();
        std::int64_t n = 0;
        session.check(kvstore_cf_count_live(cf_, &n));
        return static_cast<std::uint64_t>(n);
    }

    /// @}
    /// @name Writing
    /// @{

    /// Writes a value. The key loses the TTL it had, and gets the family's default TTL if there is one.
    void put(bytes_view key, bytes_view value) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        session.check(call::put(handle(), k.data, k.size, v.data, v.size));
    }

    /// Writes a value that lives as long as said: `put("otp", "123456", 30s)`. The default TTL is not used.
    void put(bytes_view key, bytes_view value, const lifespan& life) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        session.check(call::put_ttl(handle(), k.data, k.size, v.data, v.size, session.expire_ms(life)));
    }

    /// Writes a value only if the key is missing or expired, and says whether it did. A live key keeps its
    /// value and TTL. The default TTL is not used.
    bool put_if_absent(bytes_view key, bytes_view value, const lifespan& life = never) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        int inserted = 0;
        session.check(call::put_if_absent(handle(), k.data, k.size, v.data, v.size, session.expire_ms(life),
                                          &inserted));
        return inserted != 0;
    }

    /// Writes a value as the options say, and says whether their condition held.
    /// @throws error errc::error also for options that exclude each other.
    bool put_with(bytes_view key, bytes_view value, const put_options& options) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        const KVWriteOptions how{session.expire_ms(options.life_), options.flags_, 0};
        int written = 0;
        session.check(kvstore_cf_put_with(cf_, k.data, k.size, v.data, v.size, &how, &written));
        return written != 0;
    }

    /// Writes a value only if the key is alive and its value equal to `expected`, and says whether it did.
    /// The key then lives as long as said, whatever it had before.
    bool compare_and_swap(bytes_view key, bytes_view expected, bytes_view value,
                          const lifespan& life = never) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        const detail::c_value e(expected);
        const detail::c_value v(value);
        int swapped = 0;
        session.check(kvstore_cf_compare_and_swap(cf_, k.data, k.size, e.data, e.size, v.data, v.size,
                                                  session.expire_ms(life), &swapped));
        return swapped != 0;
    }

    /// Adds to the number under a key, kept as decimal text, and answers the sum. A missing or expired key
    /// counts as 0, and then lives as long as said; never means by the family's default TTL, if it has one.
    /// A live key keeps its TTL.
    /// @throws error errc::error if the value is no whole number of 64 bits, or the sum is none.
    std::int64_t increment(bytes_view key, std::int64_t delta = 1, const lifespan& life = never) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        std::int64_t sum = 0;
        session.check(kvstore_cf_increment(cf_, k.data, k.size, delta, session.expire_ms(life), &sum));
        return sum;
    }

    /// Deletes a key with its TTL, and says whether it was alive.
    bool erase(bytes_view key) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        return session.found(call::erase(handle(), k.data, k.size));
    }

    /// Deletes a key only if it is alive and its value equal to `expected`, and says whether it did.
    bool compare_and_erase(bytes_view key, bytes_view expected) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        const detail::c_value e(expected);
        int erased = 0;
        session.check(kvstore_cf_compare_and_delete(cf_, k.data, k.size, e.data, e.size, &erased));
        return erased != 0;
    }

    /// Deletes the keys from `lower` to before `upper` in one transaction, and answers how many were alive.
    std::uint64_t erase_range(const bound& lower, const bound& upper) {
        const detail::session& session = usable();
        const detail::c_bytes from(lower);
        const detail::c_bytes to(upper);
        std::int64_t n = 0;
        session.check(kvstore_cf_delete_range(cf_, from.data, from.size, to.data, to.size, &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Deletes everything in this family.
    void clear() {
        const detail::session& session = usable();
        session.check(call::clear(handle()));
    }

    /// @}
    /// @name The life of a key
    /// @{

    /// What is left of a key's life: `nullopt` if there is no such key, 0 if it has expired but this call
    /// is the first one of this store to meet its row.
    [[nodiscard]] std::optional<time_left> ttl(bytes_view key) const {
        const detail::session& session = usable();
        const detail::c_key k(key);
        std::int64_t left = 0;
        if (!session.found(call::ttl_remaining(handle(), k.data, k.size, &left))) {
            return std::nullopt;
        }
        return time_left_of(left);
    }

    /// When a live key expires.
    [[nodiscard]] std::optional<expiry> expire_time(bytes_view key) const {
        const std::optional<std::int64_t> ms = read_ms(&kvstore_cf_expire_time, key);
        if (!ms) {
            return std::nullopt;
        }
        return *ms == KVSTORE_NO_TTL ? expiry(never) : expiry(detail::from_ms(*ms));
    }

    /// Changes when a live key expires, without touching its value.
    change expire(bytes_view key, const lifespan& life, expire_if condition = expire_if::always) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        int changed = 0;
        if (!session.found(kvstore_cf_expire(cf_, k.data, k.size, session.expire_ms(life),
                                             static_cast<int>(condition), &changed))) {
            return change::missing;
        }
        return changed ? change::changed : change::unchanged;
    }

    /// Takes the TTL from a live key.
    change persist(bytes_view key) {
        const detail::session& session = usable();
        const detail::c_key k(key);
        int changed = 0;
        if (!session.found(kvstore_cf_persist(cf_, k.data, k.size, &changed))) {
            return change::missing;
        }
        return changed ? change::changed : change::unchanged;
    }

    /// Reads a value, and in the same step changes when the key expires: a session that lives 20 minutes from
    /// its last use. Throws what writing throws.
    std::optional<std::string> get_and_expire(bytes_view key, const lifespan& life) {
        const std::optional<buffer> value = read([&](const detail::c_key& k, void** data, int* n) {
            return kvstore_cf_get_and_expire(cf_, k.data, k.size, session_->expire_ms(life), data, n);
        }, key);
        return value ? std::optional<std::string>(value->view()) : std::nullopt;
    }

    /// Sets the TTL that put(key, value) gives from now on in this family, through whatever handle and
    /// process; zero: none. It is kept in the file. Keys that are there keep what they have.
    /// @throws error errc::error if it is negative, or more than 20 years.
    template <class Rep, class Period>
    void set_default_ttl(const std::chrono::duration<Rep, Period>& ttl) {
        set_default_ttl_ms(detail::to_ms(ttl));
    }

    /// Removes the default TTL.
    void set_default_ttl(std::nullopt_t) { set_default_ttl_ms(0); }

    /// The default TTL, if there is one.
    [[nodiscard]] std::optional<std::chrono::milliseconds> default_ttl() const {
        const detail::session& session = usable();
        std::int64_t ms = 0;
        session.check(kvstore_cf_get_default_ttl(cf_, &ms));
        return ms == 0 ? std::nullopt : std::optional<std::chrono::milliseconds>(ms);
    }

    /// The earliest moment at which a key expires, or has expired if nothing has removed it yet: when a timer
    /// should purge. Of a store: over all its families. `nullopt` if no key has a TTL.
    [[nodiscard]] std::optional<time_point> next_expiry() const {
        const detail::session& session = usable();
        std::int64_t ms = 0;
        if (!session.found(call::next_expiry(handle(), &ms))) {
            return std::nullopt;
        }
        return detail::from_ms(ms);
    }

    /// Removes every key of this family that has expired, in transactions of at most 256 keys, between which
    /// others may write, or in the open one. Answers how many. What earlier transactions removed stays
    /// removed after a failure.
    std::uint64_t purge_expired() {
        const detail::session& session = usable();
        int n = 0;
        session.check(call::purge_expired(handle(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Removes the keys of this family that expired before a moment; live keys stay. Otherwise as
    /// purge_expired().
    std::uint64_t purge_before(const moment& cutoff) {
        const detail::session& session = usable();
        std::int64_t n = 0;
        session.check(kvstore_cf_purge_before(cf_, cutoff.ms(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// @}
    /// @name The age of a value
    /// @{

    /// Switches write tracking of this family on or off, for every handle and process; it is kept in the
    /// file. Switched on, the keys that are there count as written now; switched off, all write times are
    /// forgotten. Both look at every row, in one transaction.
    void set_write_tracking(bool on) {
        const detail::session& session = usable();
        session.check(kvstore_cf_set_write_tracking(cf_, on ? 1 : 0));
    }

    /// Whether this family tracks writes.
    [[nodiscard]] bool write_tracking() const {
        const detail::session& session = usable();
        int on = 0;
        session.check(kvstore_cf_get_write_tracking(cf_, &on));
        return on != 0;
    }

    /// When the value of a live key was written. A change of its TTL is not a write.
    /// @throws error errc::error if the family does not track writes.
    [[nodiscard]] std::optional<time_point> write_time(bytes_view key) const {
        const std::optional<std::int64_t> ms = read_ms(&kvstore_cf_write_time, key);
        return ms ? std::optional<time_point>(detail::from_ms(*ms)) : std::nullopt;
    }

    /// Removes every key that was written longer ago than `max_age`, live or expired, and answers how many of
    /// them were alive. In transactions as purge_expired().
    /// @throws error errc::error if the family does not track writes, or for a negative age.
    template <class Rep, class Period>
    std::uint64_t sweep(const std::chrono::duration<Rep, Period>& max_age) {
        const detail::session& session = usable();
        std::int64_t n = 0;
        session.check(kvstore_cf_sweep(cf_, detail::to_ms(max_age), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// @}
    /// @name Walks
    /// Each is at its first entry from the start.
    /// @{

    /// Walks over the live entries whose keys start with a prefix; all of them without one.
    [[nodiscard]] iterator items(bytes_view prefix = {}, direction order = direction::forward) const {
        const bool forward = order == direction::forward;
        if (prefix.size() == 0) {
            iterator made = make([&](KVIterator** it) {
                return forward ? call::iterator(handle(), it) : call::reverse_iterator(handle(), it);
            });
            made.first();
            return made;
        }
        const detail::c_bytes p(prefix, "prefix");
        return make([&](KVIterator** it) {
            return forward ? call::prefix_iterator(handle(), p.data, p.size, it)
                           : call::reverse_prefix_iterator(handle(), p.data, p.size, it);
        });
    }

    /// Walks over the live keys that start with a prefix, all of them without one, and reads no values.
    [[nodiscard]] key_range keys(bytes_view prefix = {}, direction order = direction::forward) const {
        const std::string after = after_prefix(prefix.view());
        const range_flags how = order == direction::forward ? range_flags::none : range_flags::reverse;
        return key_range(range(prefix.size() == 0 ? bound() : bound(prefix),
                               after.empty() ? bound() : bound(after), how | range_flags::keys_only));
    }

    /// Walks over the live entries from `lower` to before `upper`. A lower bound that is not below the upper
    /// one: nothing is in it.
    [[nodiscard]] iterator range(const bound& lower, const bound& upper,
                                 range_flags flags = range_flags::none) const {
        const detail::c_bytes from(lower);
        const detail::c_bytes to(upper);
        return make([&](KVIterator** it) {
            return kvstore_cf_range_iterator_create(cf_, from.data, from.size, to.data, to.size,
                                                    static_cast<int>(flags), it);
        }, flags);
    }

    /// Walks over one partition of row keys (see row_key()), from the clustering part `start` to before
    /// `finish`. Its keys, and those it seeks, are clustering parts.
    [[nodiscard]] iterator rows(bytes_view partition, const bound& start = {}, const bound& finish = {},
                                range_flags flags = range_flags::none) const {
        const detail::c_bytes of(partition, "partition key");
        const detail::c_bytes from(start);
        const detail::c_bytes to(finish);
        return make([&](KVIterator** it) {
            return kvstore_cf_row_iterator_create(cf_, of.data, of.size, from.data, from.size, to.data,
                                                  to.size, static_cast<int>(flags), it);
        }, flags);
    }

    /// Walks over the keys that expire at or after `from` and before `to`, in the order of their expiry,
    /// those that have expired but are still there included. iterator::expire_time shows when. It cannot
    /// seek.
    [[nodiscard]] iterator expiring(const moment& from, const moment& to) const {
        return make([&](KVIterator** it) {
            return kvstore_cf_expiring_iterator_create(cf_, from.ms(), to.ms(), it);
        });
    }

    /// The same without an end: all keys with a TTL that expire at or after `from`, those of the last moment
    /// there is included.
    [[nodiscard]] iterator expiring(const moment& from, never_t) const {
        return make([&](KVIterator** it) {
            return kvstore_cf_expiring_iterator_create(cf_, from.ms(), detail::max_ms, it);
        });
    }

    /// @}

protected:
    /// `cf` is not owned.
    keyspace(std::shared_ptr<detail::session> session, KVColumnFamily* cf) noexcept
        : session_(std::move(session)), cf_(cf) {}
    keyspace(keyspace&& other) noexcept = default; ///< The other one answers errc::misuse from now on.
    keyspace& operator=(keyspace&& other) = delete;
    ~keyspace() = default;

    /// Exchanges what both stand for.
    void swap(keyspace& other) noexcept {
        std::swap(session_, other.session_);
        std::swap(cf_, other.cf_);
    }

    /// The session, if this may be used.
    detail::session& usable() const { return detail::usable(session_); }

    /// What the C functions take.
    Handle* handle() const noexcept {
        if constexpr (std::is_same_v<Handle, KVStore>) {
            return session_->kv;
        } else {
            return cf_;
        }
    }

    std::shared_ptr<detail::session> session_; ///< Null if moved from.
    KVColumnFamily* cf_;                       ///< This family, or the default one.

private:
    struct free_all {
        std::vector<void*>& values;
        free_all(const free_all&) = delete;
        free_all& operator=(const free_all&) = delete;
        explicit free_all(std::vector<void*>& of) noexcept : values(of) {}
        ~free_all() {
            for (void* value : values) {
                kvstore_free(value);
            }
        }
    };

    static time_left time_left_of(std::int64_t ms) {
        return ms == KVSTORE_NO_TTL ? time_left(never) : time_left(std::chrono::milliseconds(ms));
    }

    /// The first string after all that start with a prefix; empty if there is none.
    static std::string after_prefix(std::string_view prefix) {
        std::string after(prefix);
        while (!after.empty() && after.back() == '\xff') {
            after.pop_back();
        }
        if (!after.empty()) {
            after.back() = static_cast<char>(static_cast<unsigned char>(after.back()) + 1U);
        }
        return after;
    }

    template <class Call>
    std::optional<buffer> read(const Call& ask, bytes_view key) const {
        const detail::session& session = usable();
        const detail::c_key k(key);
        void* value = nullptr;
        int n = 0;
        if (!session.found(ask(k, &value, &n))) {
            return std::nullopt;
        }
        return buffer(value, n);
    }

    std::optional<std::int64_t> read_ms(int (*ask)(KVColumnFamily*, const void*, int, std::int64_t*),
                                        bytes_view key) const {
        const detail::session& session = usable();
        const detail::c_key k(key);
        std::int64_t ms = 0;
        return session.found(ask(cf_, k.data, k.size, &ms)) ? std::optional<std::int64_t>(ms) : std::nullopt;
    }

    void set_default_ttl_ms(std::int64_t ms) {
        const detail::session& session = usable();
        session.check(kvstore_cf_set_default_ttl(cf_, ms));
    }

    template <class Create>
    iterator make(const Create& create, range_flags flags = range_flags::none) const {
        const detail::session& session = usable();
        KVIterator* it = nullptr;
        session.check(create(&it));
        return iterator(session_, it, (flags & range_flags::keys_only) != range_flags::none);
    }
};

} // namespace kvstore

#endif
