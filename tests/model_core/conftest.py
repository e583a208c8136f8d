from hypothesis import settings

# The first call of a kernel compiles it: the time of one example says nothing.
settings.register_profile("kernels", deadline=None)
settings.load_profile("kernels")
