"""DBOS Transact for Python: a workflow of three no-op steps, run in this process, checkpointed in Postgres."""

import asyncio
from importlib.metadata import version

from dbos import DBOS

from measure import arguments, measure


@DBOS.step()
async def add_one(number: int) -> int:
    return number + 1


@DBOS.workflow()
async def three_steps(number: int) -> int:
    for _ in range(3):
        number = await add_one(number)
    return number


async def main() -> None:
    options = arguments(__doc__)
    settings = {"name": "bench", "system_database_url": options.database, "log_level": "ERROR", "run_admin_server": False}
    DBOS(config=settings)
    DBOS.launch()
    await measure(f"DBOS Python {version('dbos')}", options, three_steps)
    DBOS.destroy()


asyncio.run(main())
