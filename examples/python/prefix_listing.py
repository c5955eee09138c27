"""A listing page by page, as of a folder, without reading what is not shown. Run it: python prefix_listing.py"""

import kvstore

db = kvstore.open("files.db", keys=str)


def page(folder, after=None, size=3):
    """The next names in a folder; and what to give as ``after`` for the page after it, None at the end."""
    prefix = folder + "/"
    start = None if after is None else prefix + after + "\0"  # the first key after it
    names = [key[len(prefix) :] for key in db.keys(prefix=prefix, start=start, limit=size + 1)]
    return names[:size], names[size - 1] if len(names) > size else None


if __name__ == "__main__":
    db.put_many({f"photos/{n:03}.jpg": b"..." for n in range(8)})
    db.put_many({"notes/todo": b"...", "photos-old/001.jpg": b"..."})
    after = None
    while True:
        names, after = page("photos", after)
        print(*names)
        if after is None:
            break
    print("newest:", *db.keys(prefix="photos/", reverse=True, limit=2))
