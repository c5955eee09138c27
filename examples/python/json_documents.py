"""Documents as JSON, with a list of them by city. Run it: python json_documents.py"""

import kvstore

db = kvstore.open("people.db")
people = db.family("people", create=True, codec=kvstore.JSON)
by_city = db.family("people_by_city", create=True, keys=str)  # keys only: "city/name"


def save(name, document):
    with db.transaction():  # the document and its place in the list, or neither
        before = people.get(name)
        if before is not None:
            by_city.delete(f"{before['city']}/{name}")
        people[name] = document
        by_city[f"{document['city']}/{name}"] = b""


def in_city(city):
    return [key.split("/", 1)[1] for key in by_city.keys(prefix=f"{city}/")]


if __name__ == "__main__":
    save("ada", {"city": "London", "born": 1815})
    save("grace", {"city": "New York", "born": 1906})
    save("alan", {"city": "London", "born": 1912})
    print(in_city("London"), people["ada"]["born"])
    save("alan", {"city": "Manchester", "born": 1912})
    print(in_city("London"), in_city("Manchester"))
