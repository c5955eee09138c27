"""Documents as JSON, with a list of them by city. Run it: python json_documents.py"""

import json

import kvstore

db = kvstore.open("people.db")
people = db.family("people", create=True)
by_city = db.family("people_by_city", create=True)  # keys only: "city/name"


def save(name, document):
    with db.transaction():  # the document and its place in the list, or neither
        before = people.get(name)
        if before is not None:
            by_city.delete(f"{json.loads(before)['city']}/{name}")
        people[name] = json.dumps(document)
        by_city[f"{document['city']}/{name}"] = b""


def load(name):
    return json.loads(people[name])


def in_city(city):
    return [key.decode().split("/", 1)[1] for key in by_city.keys(prefix=f"{city}/")]


if __name__ == "__main__":
    save("ada", {"city": "London", "born": 1815})
    save("grace", {"city": "New York", "born": 1906})
    save("alan", {"city": "London", "born": 1912})
    print(in_city("London"), load("ada")["born"])
    save("alan", {"city": "Manchester", "born": 1912})
    print(in_city("London"), in_city("Manchester"))
