// Encrypted stores. In a build without encryption: that every call fails with an explanation.
#include <array>
#include <cstddef>
#include <fstream>
#include <iterator>

#include "check.hpp"

using namespace std::chrono_literals;
using namespace std::string_literals;

static constexpr std::string_view password = "correct horse";

static bool can_encrypt() { return kvstore::engine().find("+sqlcipher") != std::string_view::npos; }

static kvstore::store encrypted(const char* path, kvstore::bytes_view with, const check::clock& time) {
    kvstore::store db = kvstore::store::open_encrypted(path, with);
    db.set_clock(time);
    CHECK(db.is_encrypted());
    return db;
}

// A raw key: fast, because no key is derived.
static std::string any_key(char byte) { return kvstore::raw_key(std::string(32, byte)); }

static bool has_sentinel(const char* path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    CHECK(bytes.size() > 4096);
    return bytes.find("Sentinel") != std::string::npos;
}

static void fill(kvstore::store& db) {
    db.put("Sentinel", "value");
    db.put("ends", "soon", 5s);
    db.family_or_create("others").put("key", "Sentinel");
}

static void check_contents(const kvstore::store& db) {
    CHECK(db.get("Sentinel") == "value" && db.count() == 2);
    CHECK(db.get_with_ttl("ends")->ttl.duration() == 5s);
    CHECK(db.family("others").get("key") == "Sentinel");
    db.integrity_check();
}

SCENARIO(encrypted_store_changes_and_loses_its_password) {
    if (!can_encrypt()) {
        return;
    }
    const check::clock time;
    const std::string key = any_key('\xa5');
    {
        kvstore::store db = encrypted("life.db", password, time);
        fill(db);
        kvstore::family cf = db.family("others");
        kvstore::cursor it = db.items();
        db.reencrypt(key);
        CHECK(db.is_encrypted() && it.key() == "Sentinel"); // open objects remain usable
        it.next();
        CHECK(it.key() == "ends" && cf.get("key") == "Sentinel");
        check_contents(db);
    }
    CHECK(!has_sentinel("life.db"));
    THROWS(auth_failed, kvstore::store::open_encrypted("life.db", password));
    THROWS(auth_failed, kvstore::store("life.db"));
    {
        kvstore::store db = encrypted("life.db", key, time);
        check_contents(db);
        db.remove_encryption();
        CHECK(!db.is_encrypted());
        check_contents(db);
        THROWS(error, db.remove_encryption());
        THROWS(error, db.reencrypt(password));
    }
    CHECK(has_sentinel("life.db"));
    kvstore::store db("life.db");
    db.set_clock(time);
    check_contents(db);
}

SCENARIO(plain_store_opened_with_password_is_encrypted_in_place) {
    if (!can_encrypt()) {
        return;
    }
    const check::clock time;
    const std::string key = any_key('k');
    {
        kvstore::store plain("in_place.db");
        plain.set_clock(time);
        fill(plain);
        CHECK(!plain.is_encrypted());
        THROWS(busy, kvstore::store::open_encrypted("in_place.db", key));
        check_contents(plain);
    }
    kvstore::config only_encrypted;
    only_encrypted.only_encrypted = true;
    THROWS(auth_failed, kvstore::store::open_encrypted("in_place.db", key, only_encrypted));
    CHECK(has_sentinel("in_place.db"));
    kvstore::store db = encrypted("in_place.db", key, time);
    CHECK(!has_sentinel("in_place.db"));
    check_contents(db);
    db.backup("copy_of_in_place.db");
    THROWS(auth_failed, kvstore::store("copy_of_in_place.db"));
    CHECK(kvstore::store::open_encrypted("copy_of_in_place.db", key).count() == 2);
}

SCENARIO(wrong_password_throws_and_changes_nothing) {
    if (!can_encrypt()) {
        return;
    }
    const check::clock time;
    {
        kvstore::store db = encrypted("wrong.db", password, time);
        fill(db);
    }
    try {
        (void)kvstore::store::open_encrypted("wrong.db", "correct hors");
        CHECK(false);
    } catch (const kvstore::error& e) {
        CHECK(e.code() == kvstore::errc::auth_failed && !e.retryable());
        CHECK(std::string_view(e.what()).find("correct hors") == std::string_view::npos);
    }
    THROWS(auth_failed, kvstore::store::open_encrypted("wrong.db", "correct horse\0x"s)); // not truncated at the NUL
    THROWS(auth_failed, kvstore::store::open_encrypted("wrong.db", any_key('k')));
    check_contents(encrypted("wrong.db", password, time));
    check_contents(encrypted("wrong.db", "correct horse\0"s, time)); // equal for HMAC, which pads with NULs
}

SCENARIO(reencrypt_fails_while_store_is_open_elsewhere) {
    if (!can_encrypt()) {
        return;
    }
    const check::clock time;
    const std::string key = any_key('k');
    kvstore::store db = encrypted("taken_twice.db", key, time);
    fill(db);
    {
        kvstore::store second = encrypted("taken_twice.db", key, time);
        THROWS(busy, db.reencrypt(any_key('l')));
        THROWS(busy, db.remove_encryption());
    }
    {
        auto tx = db.begin();
        THROWS(busy, db.reencrypt(any_key('l')));
    }
    THROWS(error, db.reencrypt(""));
    CHECK(db.is_encrypted());
    check_contents(db);
    db.close();
    kvstore::config config;
    config.read_only = true;
    kvstore::store reader = kvstore::store::open_encrypted("taken_twice.db", key, config);
    THROWS(readonly, reader.put("key", "value"));
    THROWS(readonly, reader.reencrypt(any_key('l')));
    reader.close();
    db = encrypted("taken_twice.db", key, time);
    db.reencrypt(any_key('l'));
    check_contents(db);
}

SCENARIO(store_that_cannot_be_encrypted_leaves_no_file) {
    kvstore::config config;
    config.page_size = 8192;
    THROWS(error, kvstore::store::open_encrypted("never_made.db", ""));
    THROWS(error, kvstore::store::open_encrypted("never_made.db", kvstore::bytes_view()));
    THROWS(error, kvstore::store::open_encrypted("never_made.db", password, config));
    THROWS(error, kvstore::store::open_encrypted(":memory:", password));
    THROWS(error, kvstore::store::open_encrypted("", password));
    THROWS(error, kvstore::store::open_encrypted("never_made.db\0x"s, password));
    CHECK(!std::ifstream("never_made.db"));
}

SCENARIO(raw_key_is_hex_text_of_32_bytes) {
    std::array<std::byte, 32> key{};
    for (std::size_t i = 0; i < key.size(); i++) {
        key[i] = std::byte(i * 8 + 7);
    }
    CHECK(kvstore::raw_key(key) == "x'070f171f272f373f474f575f676f777f878f979fa7afb7bfc7cfd7dfe7eff7ff'");
    CHECK(any_key('\0') == "x'" + std::string(64, '0') + "'");
    THROWS(error, kvstore::raw_key(""));
    THROWS(error, kvstore::raw_key(std::string(31, 'k')));
    THROWS(error, kvstore::raw_key(std::string(33, 'k')));
    try {
        (void)kvstore::raw_key(any_key('k')); // the text form, not the bytes
        CHECK(false);
    } catch (const kvstore::error& e) {
        const std::string_view text = e.what();
        CHECK(text.find("67") != std::string_view::npos && text.find("6b6b") == std::string_view::npos);
    }
}

SCENARIO(is_encrypted_throws_on_closed_store) {
    kvstore::store plain(":memory:");
    plain.put("key", "value");
    CHECK(!plain.is_encrypted());
    THROWS(misuse, plain.backup("copy_of_asked_alone.db", [&](int, int) { (void)plain.is_encrypted(); }));
    if (can_encrypt()) {
        kvstore::config config;
        config.exclusive = true; // the progress function of its backup cannot use it
        kvstore::store db = kvstore::store::open_encrypted("asked_alone.db", any_key('k'), config);
        db.put("key", "value");
        THROWS(misuse, db.backup("copy_of_asked_alone.db", [&](int, int) { (void)db.is_encrypted(); }));
        CHECK(db.is_encrypted());
    }
}

SCENARIO(build_without_encryption_throws_and_keeps_store_plain) {
    if (can_encrypt()) {
        return;
    }
    const auto says_so = [](const auto& call) {
        try {
            call();
            CHECK(false);
        } catch (const kvstore::error& e) {
            CHECK(e.code() == kvstore::errc::error);
            CHECK(std::string_view(e.what()).find("ENCRYPTION=1") != std::string_view::npos);
        }
    };
    says_so([] { (void)kvstore::store::open_encrypted("left_plain.db", password); });
    CHECK(!std::ifstream("left_plain.db"));
    kvstore::store db("left_plain.db");
    db.put("Sentinel", "value");
    says_so([&] { db.reencrypt(password); });
    says_so([&] { db.remove_encryption(); });
    says_so([] { (void)kvstore::store::open_encrypted("left_plain.db", password); });
    CHECK(!db.is_encrypted() && db.get("Sentinel") == "value");
}
