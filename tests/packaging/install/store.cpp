// Uses an installed kvstore.hpp. Other tests cover its features; this one checks that it is found,
// that it links, and that errors thrown by the library can be caught. argv[1] is the store.
#include <kvstore.hpp>

#include <cstdio>

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    kvstore::store store(argv[1]);
    store.put("key", "value");
    if (store.get("key") != "value" || store.get("missing")) return 3;
    try {
        store.family("missing");
        return 4;
    } catch (const kvstore::error &) {
    }
    store.close();
    std::printf("kvstore %s\n", std::string(kvstore::version()).c_str());
    return 0;
}
