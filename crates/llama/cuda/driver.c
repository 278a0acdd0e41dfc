/* Stands in for the driver's library while llama.cpp's module is linked: the real one comes with the driver, and machines that
   build need not have one. Its functions are never called. */
#define STAND_IN(name) int name(void) { return 999; }
STAND_IN(cuCtxGetCurrent)
STAND_IN(cuDeviceGet)
STAND_IN(cuDeviceGetAttribute)
STAND_IN(cuDeviceGetCount)
STAND_IN(cuDriverGetVersion)
STAND_IN(cuGetErrorName)
STAND_IN(cuGetErrorString)
STAND_IN(cuInit)
STAND_IN(cuMemAddressFree)
STAND_IN(cuMemAddressReserve)
STAND_IN(cuMemCreate)
STAND_IN(cuMemGetAllocationGranularity)
STAND_IN(cuMemMap)
STAND_IN(cuMemRelease)
STAND_IN(cuMemSetAccess)
STAND_IN(cuMemUnmap)
