// A C++17 program that uses kvstore.h directly, without the C++ headers. Handles are in unique_ptr.
#include "kvstore.h"

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace {

struct Close {
    void operator()(KVStore *kv) const { kvstore_close(kv); }
    void operator()(KVColumnFamily *cf) const { kvstore_cf_close(cf); }
    void operator()(KVIterator *it) const { kvstore_iterator_close(it); }
    void operator()(void *memory) const { kvstore_free(memory); }
};
using Store = std::unique_ptr<KVStore, Close>;
using Iterator = std::unique_ptr<KVIterator, Close>;
using Memory = std::unique_ptr<void, Close>;

static_assert(std::is_standard_layout_v<KVStoreConfig> && std::is_trivial_v<KVStoreConfig>);
static_assert(std::is_standard_layout_v<KVStoreStats> && std::is_trivial_v<KVStoreStats>);
static_assert(std::is_same_v<decltype(KVSTORE_NO_TTL), std::int64_t>);

void check(int code, KVStore *kv)
{
    if (code != KVSTORE_OK) {
        throw std::runtime_error(std::string(kvstore_strerror(code)) + ": " + kvstore_errmsg(kv));
    }
}

void put(KVStore *kv, std::string_view key, std::string_view value)
{
    int nKey = static_cast<int>(key.size()), nValue = static_cast<int>(value.size());
    check(kvstore_put(kv, key.data(), nKey, value.data(), nValue), kv);
}

std::string get(KVStore *kv, std::string_view key)
{
    void *value = nullptr;
    int n = 0;
    check(kvstore_get(kv, key.data(), static_cast<int>(key.size()), &value, &n), kv);
    Memory owner(value);
    return std::string(static_cast<const char *>(value), static_cast<std::size_t>(n));
}

void run()
{
    KVStoreConfig config{};
    config.busyTimeout = 100;
    KVStore *opened = nullptr;
    check(kvstore_open_v2(":memory:", &opened, &config), nullptr);
    Store kv(opened);
    put(kv.get(), "b", "2");
    put(kv.get(), "a", std::string_view("1\0", 2));
    put(kv.get(), "empty", std::string_view());
    if (get(kv.get(), "a") != std::string("1\0", 2) || !get(kv.get(), "empty").empty()) {
        throw std::runtime_error("not what was put");
    }

    KVIterator *made = nullptr;
    check(kvstore_iterator_create(kv.get(), &made), kv.get());
    Iterator it(made);
    std::string keys;
    for (check(kvstore_iterator_first(it.get()), kv.get()); kvstore_iterator_eof(it.get()) == 0;
         check(kvstore_iterator_next(it.get()), kv.get())) {
        void *key = nullptr;
        int n = 0;
        check(kvstore_iterator_key(it.get(), &key, &n), kv.get());
        keys.append(static_cast<const char *>(key), static_cast<std::size_t>(n)).append(",");
    }
    if (keys != "a,b,empty,") {
        throw std::runtime_error("wrong order: " + keys);
    }

    std::int64_t now = 1000; // a lambda without captures is a clock
    check(kvstore_set_clock(kv.get(), [](void *context) { return *static_cast<std::int64_t *>(context); }, &now),
          kv.get());
    check(kvstore_put_ttl(kv.get(), "ttl", 3, "x", 1, 2000), kv.get());
    now = 2000;
    int there = 7;
    check(kvstore_exists(kv.get(), "ttl", 3, &there), kv.get());
    if (there != 0) {
        throw std::runtime_error("it lives too long");
    }
    try {
        get(kv.get(), "missing");
        throw std::logic_error("it is there");
    } catch (const std::runtime_error &) {
    }
}

} // namespace

int main()
{
    try {
        run();
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    std::puts("done");
}
