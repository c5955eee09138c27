// Uses an installed kvstore.hpp: what the header can do is tested elsewhere, here it must be found, link,
// and throw and catch its errors with the library behind it. argv[1] is the store.
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
