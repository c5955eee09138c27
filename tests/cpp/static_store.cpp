// A store in a static object, which is closed after main: static_store STORE PASSWORD
#include <memory>
#include <string>

#include "kvstore.hpp"

namespace {
std::unique_ptr<kvstore::store> db;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    const std::string password = argv[2];
    db = std::make_unique<kvstore::store>(password.empty() ? kvstore::store(argv[1])
                                                           : kvstore::store::open_encrypted(argv[1], password));
    db->put("key", "value");
    return db->get("key") == "value" ? 0 : 1;
}
