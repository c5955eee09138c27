// Threads that share a store.
#include <thread>

#include "check.hpp"

using namespace std::chrono_literals;

SCENARIO(threads_share_a_store_and_a_family) {
    check::timed_store s;
    kvstore::family cf = s.db.create_family("family");
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&s, &cf, t] {
            for (int i = 0; i < 100; i++) {
                const std::string key = std::to_string(t) + ":" + std::to_string(i);
                s.db.put(key, key, 1h);
                cf.increment("n");
                CHECK(s.db.get(key) == key);
                THROWS(error, s.db.put("", ""));
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(s.db.count() == 400 && cf.get("n") == "400");
}

SCENARIO(clock_is_replaced_while_threads_call_it) {
    check::timed_store s;
    std::atomic<bool> stop{false};
    std::thread asking([&] {
        while (!stop) {
            s.db.put("key", "value", 1h);
            CHECK(s.db.contains("key"));
        }
    });
    for (int i = 0; i < 200; i++) {
        s.db.set_clock(s.time);
    }
    stop = true;
    asking.join();
}
