// Shared by the C++ tests: scenarios that register themselves by name, CHECK, THROWS, FAILS, and a store whose
// clock the test controls. It compiles without exceptions, too; THROWS and timed_store need them. No test calls a
// function of the C API; tests/c_api/cpp.rs relies on that.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <kvstore.hpp>

namespace check {

struct scenario {
    const char* name;
    void (*run)();
};

inline std::vector<scenario>& scenarios() {
    static std::vector<scenario> all;
    return all;
}

struct registration {
    registration(const char* name, void (*run)()) { scenarios().push_back({name, run}); }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
    std::exit(1);
}

#if KVSTORE_EXCEPTIONS

// Fails unless the call throws a kvstore::error with this code and a text.
template <class Call>
void throws(const char* file, int line, const char* what, kvstore::errc code, const Call& call) {
    try {
        call();
    } catch (const kvstore::error& e) {
        const std::string_view text = e.what();
        if (e.code() != code || text.size() < 5 || text == "no error") {
            fail(file, line, std::string(what) + " threw " + kvstore::describe(e.code()) + ": " + e.what());
        }
        return;
    }
    fail(file, line, std::string(what) + " threw nothing");
}

#endif

// Fails unless the result is a failure with this code and a text.
template <class T>
void fails(const char* file, int line, const char* what, kvstore::errc code, const kvstore::result<T>& returned) {
    if (returned.ok()) {
        fail(file, line, std::string(what) + " succeeded");
    }
    const kvstore::failure& why = returned.error();
    const std::string_view text = why.what();
    if (why.code() != code || text.size() < 5 || text == "no error") {
        fail(file, line, std::string(what) + " failed with " + kvstore::describe(why.code()) + ": " + why.what());
    }
}

// Returns the value of a result. Fails if there is none.
template <class T>
T value(const char* file, int line, const char* what, kvstore::result<T> returned) {
    if (!returned.ok()) {
        fail(file, line, std::string(what) + " failed: " + returned.error().what());
    }
    if constexpr (!std::is_void_v<T>) {
        return *std::move(returned);
    }
}

// Clock that the test controls. Copies share the time.
class clock {
public:
    kvstore::time_point operator()() const { return kvstore::time_point(std::chrono::milliseconds(*ms_)); }
    void advance(std::chrono::milliseconds by) const { *ms_ += by.count(); }

private:
    std::shared_ptr<std::atomic<std::int64_t>> ms_ = std::make_shared<std::atomic<std::int64_t>>(1000000);
};

#if KVSTORE_EXCEPTIONS
// Store in memory with a controlled clock.
struct timed_store {
    clock time;
    kvstore::store db{":memory:"};

    timed_store() { db.set_clock(time); }
};
#endif

} // namespace check

#define SCENARIO(name)                                                                                   \
    static void name();                                                                                  \
    static const check::registration registered_##name(#name, name);                                     \
    static void name()

#define CHECK(...)                                                                                       \
    ((__VA_ARGS__) ? void() : check::fail(__FILE__, __LINE__, "CHECK(" #__VA_ARGS__ ") failed"))

// The result must be a failure with this code.
#define FAILS(code, ...) check::fails(__FILE__, __LINE__, #__VA_ARGS__, kvstore::errc::code, __VA_ARGS__)

// Value of a result that must be a success.
#define VALUE(...) check::value(__FILE__, __LINE__, #__VA_ARGS__, __VA_ARGS__)

// The call must succeed.
#define DONE(...) check::value(__FILE__, __LINE__, #__VA_ARGS__, __VA_ARGS__)

#define THROWS(code, ...)                                                                                \
    check::throws(__FILE__, __LINE__, #__VA_ARGS__, kvstore::errc::code, [&] { (void)(__VA_ARGS__); })

#endif
