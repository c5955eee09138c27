// kvstore with the standard library: ranges in algorithms, containers, bytes, transactions.
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <stdexcept>
#include <vector>

#include <kvstore.hpp>

using namespace std::chrono_literals;

static void withdraw(kvstore::store& db, int amount)
{
    const auto balance = db.transaction([&] { // commits when it returns, rolls back when it throws
        const auto left = db.increment("balance", -amount);
        if (left < 0) throw std::runtime_error("not enough");
        return left;
    });
    std::cout << "balance " << balance;
}

int main()
try {
    kvstore::store db("standard_library.db");
    const std::vector<std::byte> token(40, std::byte{0xff}); // any contiguous bytes are a key or a value
    db.put("session:ada", token, 20min);
    db.put("session:bob", "short", 20min);
    db.put("session:eve", "permanent");
    db.put("balance", "100");

    // Keys and values are views, valid until the next step of the iterator.
    long sessions = 0, permanent = 0;
    auto range = db.items("session:");
    for (auto at = range.begin(); at != range.end(); ++at) {
        sessions++;
        if (at.expires_at().never_expires()) permanent++;
    }
    std::cout << sessions << " sessions, " << permanent << " without a TTL\n";

    if (auto at = db.find("session:ada"); at != db.end()) std::cout << "ada has " << at->value.size() << " bytes\n";

    // A container owns its bytes.
    auto items = db.items("session:");
    const std::map<std::string, std::string> copies(items.begin(), items.end());
    std::cout << "copied:";
    for (const auto& [key, value] : copies) std::cout << ' ' << key;
    std::cout << '\n';

    const auto is_long = [](const kvstore::entry& e) { return e.value.size() > 9; };
#if __cplusplus >= 202002L
    if (std::ranges::count_if(db.items("session:"), is_long) != 1) return 1;
#else
    if (std::count_if(db.items("session:").begin(), db.end(), is_long) != 1) return 1;
#endif
    if (db.get<std::vector<std::byte>>("session:ada") != token || db.contains("session:tom")) return 1;

    withdraw(db, 10);
    try {
        withdraw(db, 1000);
    } catch (const std::runtime_error& e) {
        std::cout << ", refused: " << e.what() << '\n';
    }
    std::cout << "balance " << *db.get("balance") << '\n';
} catch (const kvstore::error& e) {
    std::cerr << "kvstore: " << e.what() << '\n';
    return 1;
}
