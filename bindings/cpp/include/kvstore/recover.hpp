/// @file
/// Recovery of a damaged file into a new store.
#ifndef KVSTORE_RECOVER_HPP
#define KVSTORE_RECOVER_HPP

#include <kvstore.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "call.hpp"
#include "callback.hpp"
#include "result.hpp"

namespace kvstore {

/// Result of recover(): the number of saved rows, and the number of losses.
struct recover_report {
    /// Number of rows in the new store.
    std::uint64_t saved;
    /// Number of losses found: rows, pages and tables; 0 if everything was saved.
    std::uint64_t lost;
};

/// Like recover(), but returns the failure instead of throwing it.
template <class Report, class Guard = detail::callback_guard>
result<recover_report> try_recover(const std::string& path, const std::string& new_path, Report&& report) {
    using callback = detail::progress_callback<std::remove_reference_t<Report>, Guard>;
    callback progress(report);
    detail::c_call c;
    const char* const from = c.text(path, "path");
    const char* const to = c.text(new_path, "path");
    std::int64_t saved = 0;
    std::int64_t lost = 0;
    c.run([&] { return kvstore_recover(from, to, &callback::call, progress.context(), &saved, &lost); });
    (void)progress.cancelled(); // rethrows the exception of `report`
    return c.outcome(recover_report{static_cast<std::uint64_t>(saved), static_cast<std::uint64_t>(lost)});
}

/// Like recover(), but returns the failure instead of throwing it.
inline result<recover_report> try_recover(const std::string& path, const std::string& new_path) {
    return try_recover(path, new_path, [](const char*, std::int64_t, std::int64_t) {});
}

#if KVSTORE_EXCEPTIONS

/// Saves every readable row of a damaged file into a new store.
///
/// No row is invented; kvstore_recover has the details.
/// @param path Damaged file. It is never written, and must not be open elsewhere.
/// @param new_path Path of the new store, which must not exist.
/// @param report Called as `report(text, done, total)`: with a line of text for each loss, and at
///   intervals with nullptr as text. `done` and `total` are numbers of pages. If it returns a bool,
///   `false` cancels the recovery, which then fails with errc::error. If it throws, the recovery is
///   cancelled and the exception passed on. No file is left in both cases.
/// @throws error errc::cantopen (`path` cannot be read), errc::notadb (the file contains nothing of
///   a store), errc::error (`new_path` exists), errc::full, errc::ioerr, errc::nomem, errc::busy.
template <class Report>
recover_report recover(const std::string& path, const std::string& new_path, Report&& report) {
    return try_recover(path, new_path, report).value();
}

/// Like recover(path, new_path, report), but without progress reports.
inline recover_report recover(const std::string& path, const std::string& new_path) {
    return try_recover(path, new_path).value();
}

#endif

} // namespace kvstore

#endif
