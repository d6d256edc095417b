"""Starts OpenStack Swift with its S3 API on this machine: a proxy and one server each of accounts, containers and objects.

    python start_swift.py DIRECTORY PORT ACCOUNT_PORT CONTAINER_PORT OBJECT_PORT

Runs until it is killed, with the four servers in its process group. The Python is one that has `swift` installed. Signatures
(AWS 4) and MD5 sums are checked; conditional puts are answered with 501, and listings may repeat. There is one user, `test:tester`
with the key `testing`, whose buckets have to be created.
"""

import os
import subprocess
import sys

from swift.common.ring import RingBuilder

CACHE = '''
"""A cache in the memory of the proxy, in place of memcached."""


class MemoryCache(dict):
    def __bool__(self):
        return True

    def get(self, key, raise_on_error=False):
        return dict.get(self, key)

    def set(self, key, value, serialize=True, time=0, min_compress_len=0, raise_on_error=False):
        self[key] = value

    def incr(self, key, delta=1, time=0):
        self[key] = dict.get(self, key, 0) + delta
        return self[key]

    def delete(self, key, server_key=None):
        self.pop(key, None)


def filter_factory(_, **settings):
    cache = MemoryCache()

    def wrap(app):
        def serve(env, start_response):
            env["swift.cache"] = cache
            return app(env, start_response)

        return serve

    return wrap
'''

BACKEND = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {directory}
devices = {directory}/devices
mount_check = false
user = {user}
log_level = ERROR
log_name = {kind}
fallocate_reserve = 0

[pipeline:main]
pipeline = {kind}-server

[app:{kind}-server]
use = egg:swift#{kind}
"""

PROXY = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {directory}
user = {user}
log_level = ERROR
log_name = proxy

[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck memory-cache listing_formats bulk s3api tempauth copy slo dlo proxy-server

[filter:memory-cache]
paste.filter_factory = memory_cache:filter_factory

[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin

[filter:s3api]
use = egg:swift#s3api
s3_acl = false
location = us-east-1
min_segment_size = 1

[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
"""

FILTERS = ["catch_errors", "gatekeeper", "healthcheck", "listing_formats", "bulk", "copy", "slo", "dlo"]

POLICIES = """
[swift-hash]
swift_hash_path_prefix = fhrd
swift_hash_path_suffix = fhrd

[storage-policy:0]
name = gold
default = yes
"""


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    directory, port = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    os.makedirs(f"{directory}/devices/sdb1", exist_ok=True)
    os.setxattr(f"{directory}/devices", "user.fhrd", b"x")  # Swift keeps metadata in attributes.
    user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
    write(f"{directory}/memory_cache.py", CACHE)
    write(f"{directory}/swift.conf", POLICIES)
    settings = {"directory": directory, "user": user}
    filters = "".join(f"\n[filter:{name}]\nuse = egg:swift#{name}\n" for name in FILTERS)
    write(f"{directory}/proxy.conf", PROXY.format(port=port, **settings) + filters)
    started = [("proxy", port)]
    for number, kind in enumerate(["account", "container", "object"], 1):
        backend = int(sys.argv[2 + number])
        write(f"{directory}/{kind}.conf", BACKEND.format(kind=kind, port=backend, **settings))
        builder = RingBuilder(4, 1, 1)
        device = {"region": 1, "zone": 1, "ip": "127.0.0.1", "port": backend, "device": "sdb1", "weight": 1}
        builder.add_dev(device)
        builder.rebalance()
        builder.get_ring().save(f"{directory}/{kind}.ring.gz")
        started.insert(0, (kind, backend))
    environment = dict(os.environ, SWIFT_TEST_CONFIG_FILE="", PYTHONPATH=directory, PYTHONWARNINGS="ignore")
    programs = os.path.dirname(os.path.abspath(sys.executable))
    processes = []
    for kind, _ in started:
        # The constant file of hashes is looked for in /etc/swift unless the module is told otherwise.
        code = (
            "import sys; from swift.common import utils; "
            f"utils.SWIFT_CONF_FILE = {directory + '/swift.conf'!r}; "
            "config = getattr(utils, 'config', utils); config.SWIFT_CONF_FILE = utils.SWIFT_CONF_FILE; "
            f"sys.argv = [{'swift-' + kind + '-server'!r}, {directory + '/' + kind + '.conf'!r}, 'verbose']; "
            f"exec(compile(open({programs + '/swift-' + kind + '-server'!r}).read(), 'server', 'exec'))"
        )
        processes.append(subprocess.Popen([sys.executable, "-c", code], env=environment))
    for process in processes:
        process.wait()
        sys.exit(f"a server of Swift ended with {process.returncode}")


main()
