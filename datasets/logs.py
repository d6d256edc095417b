#!/usr/bin/env python3
"""Write generated text that has no earlier version: logs and exports of a server.

    logs.py DIRECTORY [SEED [MB]]

writes four files of MB (default 150) megabytes each into DIRECTORY: `access.log` (combined log format), `events.jsonl`,
`orders.csv` and `dump.sql`. The same SEED (default 1) gives the same bytes.
"""
import datetime
import pathlib
import random
import sys

LINES = 5000
FIRST = datetime.datetime(2026, 1, 1)
WORDS = ("account admin api archive article asset author basket billing blog book cart catalogue category chart check "
         "city client cloud code comment company contact content country customer data delivery detail device "
         "discount doc download draft edit entry event export feed file filter form forum gallery group guide help "
         "history home icon image import index info invoice item job label language legal level library licence "
         "link list location login machine map market media member message mobile month name network news note "
         "notice offer option order page partner payment person photo plan portal post press price privacy product "
         "profile project query rating region release report request result review sale search section service "
         "setting shop show signup site source start status stock store style summary support table tag team terms "
         "theme thread ticket topic track update upload user value vendor version video view week wish year").split()


def zipf(count, power):
    """Cumulative weights of `count` values, the n-th as frequent as n to the power of -`power`."""
    total, sums = 0.0, []
    for rank in range(1, count + 1):
        total += rank ** -power
        sums.append(total)
    return sums


class Server:
    """What a server of some thousand pages and visitors knows."""

    def __init__(self, rng):
        self.rng = rng
        words = rng.choices
        extensions = ["", "", "/", ".html", ".php", ".js", ".css", ".png", ".jpg", ".svg"]
        self.paths = ["/" + "/".join(words(WORDS, k=rng.randint(1, 4))) + rng.choice(extensions) for _ in range(8000)]
        self.path_sums = zipf(len(self.paths), 1.0)
        self.addresses = [".".join(str(rng.randint(1, 254)) for _ in range(4)) for _ in range(30000)]
        self.address_sums = zipf(len(self.addresses), 0.8)
        systems = ["Windows NT 10.0; Win64; x64", "X11; Linux x86_64", "Macintosh; Intel Mac OS X 10_15_7",
                   "iPhone; CPU iPhone OS 17_5 like Mac OS X", "Linux; Android 14; SM-S918B", "Linux; Android 10; K"]
        self.agents = [f"Mozilla/5.0 ({rng.choice(systems)}) AppleWebKit/537.36 (KHTML, like Gecko) "
                       f"Chrome/{rng.randint(90, 131)}.0.{rng.randint(0, 6800)}.{rng.randint(0, 200)} "
                       f"{rng.choice(['', 'Mobile '])}Safari/537.36" for _ in range(600)]
        self.agents += [f"Mozilla/5.0 (compatible; {name}bot/2.1; +http://www.{name}.example/bot.html)"
                        for name in WORDS[:20]]
        rng.shuffle(self.agents)
        self.agent_sums = zipf(len(self.agents), 1.1)
        # A visitor keeps to one browser.
        self.agent_of = dict(zip(self.addresses, words(self.agents, cum_weights=self.agent_sums, k=len(self.addresses))))
        self.referers = ["-"] * 3 + ["https://shop.example.org" + path for path in self.paths[:1500]]
        self.referers += ["https://www.google.com/", "https://duckduckgo.com/", "https://t.co/" + words(WORDS)[0]]
        self.referer_sums = zipf(len(self.referers), 1.0)
        self.sizes = {path: rng.randint(200, 90000) for path in self.paths}

    def columns(self, count):
        """Random values of `count` lines."""
        words = self.rng.choices
        return zip(words(self.addresses, cum_weights=self.address_sums, k=count),
                   words(self.paths, cum_weights=self.path_sums, k=count),
                   words(self.referers, cum_weights=self.referer_sums, k=count),
                   words([200, 304, 404, 301, 302, 500, 403], [80, 8, 5, 3, 2, 1, 1], k=count),
                   words(["GET", "POST", "HEAD"], [90, 8, 2], k=count))


def access_log(rng):
    """Lines of a web server in the combined log format."""
    server, second = Server(rng), 0.0
    while True:
        lines = []
        for address, path, referer, status, method in server.columns(LINES):
            second += rng.expovariate(3.0)
            time = (FIRST + datetime.timedelta(seconds=int(second))).strftime("%d/%b/%Y:%H:%M:%S +0000")
            size = server.sizes[path] if status == 200 and rng.random() < 0.6 else rng.randint(150, 90000)
            query = f"?id={rng.randint(1, 50000)}" if rng.random() < 0.15 else ""
            lines.append(f'{address} - - [{time}] "{method} {path}{query} HTTP/1.1" {status} {size} "{referer}" '
                         f'"{server.agent_of[address]}"\n')
        yield "".join(lines)


def events(rng):
    """Events of services, an object of JSON each."""
    server, second = Server(rng), 0.0
    words = [f"{name}-service" for name in WORDS[:24]]
    hosts = [f"node-{number:02}.{zone}.example.internal" for number in range(16) for zone in ("eu-1", "us-2")]
    while True:
        lines = []
        for address, path, _, status, method in server.columns(LINES):
            second += rng.expovariate(20.0)
            time = (FIRST + datetime.timedelta(seconds=second)).isoformat(timespec="milliseconds")
            lines.append(f'{{"timestamp":"{time}Z","level":"{"ERROR" if status >= 500 else "INFO"}",'
                         f'"service":"{rng.choice(words)}","host":"{rng.choice(hosts)}",'
                         f'"trace_id":"{rng.getrandbits(64):016x}","message":"request completed",'
                         f'"http":{{"method":"{method}","path":"{path}","status":{status},'
                         f'"duration_ms":{rng.lognormvariate(3, 1):.2f}}},"client":{{"ip":"{address}",'
                         f'"user_id":{rng.randint(1, 200000)}}}}}\n')
        yield "".join(lines)


def orders(rng):
    """Rows of orders, with commas between the columns."""
    products = [(f"{rng.choice(WORDS).upper()[:3]}-{rng.randint(1000, 99999)}",
                 " ".join(rng.choices(WORDS, k=3)).title(), rng.randint(199, 49999)) for _ in range(3000)]
    sums = zipf(len(products), 0.9)
    cities = [name.title() + rng.choice(["", "ton", "ville", " Hill"]) for name in WORDS]
    number, second = 1000000, 0.0
    yield "order_id,ordered_at,customer_id,sku,product,quantity,unit_price,total,city,status\n"
    while True:
        lines = []
        for sku, name, price in rng.choices(products, cum_weights=sums, k=LINES):
            number += 1
            second += rng.expovariate(0.2)
            time = (FIRST + datetime.timedelta(seconds=int(second))).isoformat(sep=" ")
            quantity = rng.choice([1, 1, 1, 2, 2, 3, 5])
            status = rng.choice(["paid", "paid", "shipped", "shipped", "returned", "cancelled"])
            lines.append(f"{number},{time},{rng.randint(1, 300000)},{sku},{name},{quantity},{price / 100:.2f},"
                         f"{price * quantity / 100:.2f},{rng.choice(cities)},{status}\n")
        yield "".join(lines)


def dump(rng):
    """Rows of users as INSERT statements of many rows each."""
    number = 0
    while True:
        rows = []
        for _ in range(500):
            number += 1
            first, last = rng.choices(WORDS, k=2)
            domain = rng.choice(["example.com", "mail.example.org", "example.net"])
            created = FIRST + datetime.timedelta(seconds=rng.randint(0, 10 ** 8))
            rows.append(f"({number},'{first}.{last}{rng.randint(1, 9999)}@{domain}','{first.title()} {last.title()}',"
                        f"'{rng.getrandbits(128):032x}',{rng.randint(0, 1)},'{created:%Y-%m-%d %H:%M:%S}',"
                        f"{rng.randint(0, 10 ** 6) / 100:.2f},NULL,'{rng.choice(['active', 'invited', 'closed'])}')")
        yield "INSERT INTO `users` VALUES " + ",".join(rows) + ";\n"


def main():
    directory = pathlib.Path(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    size = int(float(sys.argv[3]) * 1e6) if len(sys.argv) > 3 else 150_000_000
    directory.mkdir(parents=True, exist_ok=True)
    for name, generate in {"access.log": access_log, "events.jsonl": events, "orders.csv": orders,
                           "dump.sql": dump}.items():
        written = 0
        with open(directory / name, "w", encoding="ascii", newline="\n") as file:
            for text in generate(random.Random(f"{seed} {name}")):
                written += file.write(text)
                if written >= size:
                    break


if __name__ == "__main__":
    main()
