#include <iostream>
#include <kvstore.hpp>

int main()
{
    using namespace std::chrono_literals;
    try {
        kvstore::store db("quickstart.db");
        db.put("user:1", "Ada");
        db.put("user:2", "Bob", 60s);
        if (auto name = db.get("user:1")) std::cout << "user:1 is " << *name << '\n';
        for (auto [key, value] : db.items("user:")) std::cout << key << " = " << value << '\n';
    } catch (const kvstore::error& e) {
        std::cerr << "kvstore: " << e.what() << '\n';
        return 1;
    }
}
