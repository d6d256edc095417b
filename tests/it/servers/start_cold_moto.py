"""moto whose objects in cold storage take some seconds to thaw. Alone, it gives them as soon as they are asked for.

start_cold_moto.py SECONDS [arguments of moto_server]
"""

import sys
from datetime import datetime

from moto.moto_api import state_manager
from moto.s3 import models
from moto.server import main

seconds = int(sys.argv[1])
state_manager.set_transition("s3::keyrestore", transition={"progression": "time", "seconds": seconds})
restore = models.FakeKey.restore


def slow_restore(self, days):
    restore(self, days)
    self._status = "IN_PROGRESS"
    self._time_progressed = datetime.now()


models.FakeKey.restore = slow_restore
main(sys.argv[2:])
