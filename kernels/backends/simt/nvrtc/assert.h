// For NVRTC, which has these functions built in.
#pragma once
