"""LangGraph with its Postgres checkpointer, durability "sync": a graph of three no-op nodes in a row, in this process."""

import asyncio
import uuid
from importlib.metadata import version
from typing import TypedDict

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from measure import arguments, measure

CONNECTIONS_MAX = 20


class State(TypedDict):
    number: int


async def add_one(state: State) -> State:
    return {"number": state["number"] + 1}


def three_nodes() -> StateGraph:
    graph = StateGraph(State)
    names = ["first", "second", "third"]
    for name in names:
        graph.add_node(name, add_one)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph


async def main() -> None:
    options = arguments(__doc__)
    # The saver's documentation requires these connection settings.
    connection = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    size = min(options.in_flight, CONNECTIONS_MAX)
    async with AsyncConnectionPool(options.database, min_size=size, max_size=size, kwargs=connection) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        graph = three_nodes().compile(checkpointer=saver)

        async def run(number: int) -> int:
            thread = {"configurable": {"thread_id": str(uuid.uuid4())}}
            return (await graph.ainvoke({"number": number}, thread, durability="sync"))["number"]

        await measure(f"LangGraph {version('langgraph')} with Postgres", options, run)


asyncio.run(main())
