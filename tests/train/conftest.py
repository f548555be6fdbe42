import pytest


@pytest.fixture
def world_factory():
    from worlds import make_world

    return make_world
