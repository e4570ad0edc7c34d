/*
 * A libnvidia-ml.so.1 without a driver: it says what the environment tells it to, and fails as told.
 *
 * FAKE_NVML_GPUS=N             cards 0 to N-1 (default 2); minors count down, so that none equals its index
 * FAKE_NVML_DO=WHAT            in nvmlInit_v2: hang, segv, abort, exit, freeze (in FAKE_NVML_FREEZER, a group of
 *                              the freezer of cgroup v1), or, and go on: noise, flood
 * FAKE_NVML_REFUSE=NAME:CODE   the function of that name returns CODE
 *
 * and for the card of an index, as INDEX:VALUE:
 * FAKE_NVML_NO_HANDLE, FAKE_NVML_SICK  the code that it is refused with, and that every question about it is
 * FAKE_NVML_MIG                it is divided into VALUE instances
 * FAKE_NVML_PID                a process that computes on it
 * FAKE_NVML_MODE, FAKE_NVML_ECC, FAKE_NVML_REMAP_FAILED, FAKE_NVML_REMAP_PENDING, FAKE_NVML_RECOVERY
 *
 * A list of either is separated by commas. Compiled with -DOLD it is a driver of 2017: no function of a third
 * form, no second form of those that got one later, no MIG, no fields.
 *
 * The numbers and layouts are NVIDIA's interface; the text is not.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { MOST_CARDS = 64, MOST_INSTANCES = 7, NONE = -1 };
#define MIB (1ULL << 20)

/* A card, or with a place an instance of it. */
typedef struct { unsigned card; int place; } handle;
static handle cards[MOST_CARDS];

/* The next VALUE of NAME:VALUE in a list, from *at on. */
static int next(const char **at, const char *name, long *value)
{
	size_t length = strlen(name);
	while (*at && **at) {
		const char *entry = *at;
		const char *comma = strchr(entry, ',');
		*at = comma ? comma + 1 : NULL;
		if (!strncmp(entry, name, length) && entry[length] == ':') {
			*value = atol(entry + length + 1);
			return 1;
		}
	}
	return 0;
}

static long first(const char *variable, const char *name, long missing)
{
	const char *at = getenv(variable);
	long value;
	return next(&at, name, &value) ? value : missing;
}

static long knob(const char *variable, const handle *device, long missing)
{
	char name[16];
	snprintf(name, sizeof name, "%u", device->card);
	return first(variable, name, missing);
}

static unsigned count_of_cards(void)
{
	const char *count = getenv("FAKE_NVML_GPUS");
	return count ? (unsigned)atoi(count) : 2;
}

#define CALL() \
	do { \
		int refused = (int)first("FAKE_NVML_REFUSE", __func__, SUCCESS); \
		if (refused) \
			return refused; \
	} while (0)
#define ASK(device) \
	do { \
		CALL(); \
		int sick = (int)knob("FAKE_NVML_SICK", device, SUCCESS); \
		if (sick) \
			return sick; \
	} while (0)

static void into(const char *directory, const char *name, const char *text)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	FILE *file = fopen(path, "w");
	if (file) {
		fputs(text, file);
		fclose(file);
	}
}

static void freeze(const char *group)
{
	char pid[16];
	snprintf(pid, sizeof pid, "%d", getpid());
	into(group, "tasks", pid);
	into(group, "freezer.state", "FROZEN");
}

static void hang(void)
{
	signal(SIGTERM, SIG_IGN);
	for (;;)
		pause();
}

int nvmlInit_v2(void)
{
	const char *what = getenv("FAKE_NVML_DO");
	CALL();
	if (!what)
		return SUCCESS;
	if (!strcmp(what, "hang"))
		hang();
	if (!strcmp(what, "segv"))
		*(volatile int *)16 = 0;
	if (!strcmp(what, "abort"))
		abort();
	if (!strcmp(what, "exit"))
		exit(0);
	if (!strcmp(what, "freeze")) {
		freeze(getenv("FAKE_NVML_FREEZER"));
		hang();
	}
	if (!strcmp(what, "noise")) {
		/* The beginning of a line that is never ended, and a line that is written at the exit. */
		(void)!write(1, "NVRM: gpu-coord-nvml 1 {", 24);
		printf("nothing to see here\n");
		fputs("warning: fake\n", stderr);
	}
	for (int times = 0; !strcmp(what, "flood") && times < 1 << 16; times++)
		(void)!write(1, "0123456789012345678901234567890\n", 32);
	return SUCCESS;
}

int nvmlShutdown(void)
{
	/* It is not to be called: a driver that hangs here would cost the answer. */
	hang();
	return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
	CALL();
	snprintf(text, length, "550.54.15");
	return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	CALL();
	*count = count_of_cards();
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle **device)
{
	CALL();
	if (index >= count_of_cards() || index >= MOST_CARDS)
		return INVALID_ARGUMENT;
	cards[index] = (handle){ index, NONE };
	*device = &cards[index];
	return (int)knob("FAKE_NVML_NO_HANDLE", *device, SUCCESS);
}

int nvmlDeviceGetUUID(const handle *device, char *text, unsigned length)
{
	ASK(device);
	if (device->place == NONE)
		snprintf(text, length, "GPU-fa4e0000-0000-4000-8000-%012x", device->card);
	else
		snprintf(text, length, "MIG-fa4e0000-0000-4000-8000-%06x%06x", device->card, (unsigned)device->place);
	return SUCCESS;
}

int nvmlDeviceGetName(const handle *device, char *text, unsigned length)
{
	ASK(device);
	snprintf(text, length, "NVIDIA Fake, 40GB%s", device->place == NONE ? "" : " MIG 1g.5gb");
	return SUCCESS;
}

int nvmlDeviceGetMinorNumber(const handle *device, unsigned *minor)
{
	ASK(device);
	*minor = count_of_cards() - 1 - device->card;
	return SUCCESS;
}

typedef struct {
	char legacy[16];
	unsigned domain, bus, device, ids, subsystem;
#ifdef OLD
	unsigned reserved[4];
#else
	char address[32];
#endif
} pci_info;

static int pci(const handle *device, pci_info *info)
{
	memset(info, 0, sizeof *info);
	info->bus = 0x1a + device->card;
	snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", info->bus);
#ifndef OLD
	snprintf(info->address, sizeof info->address, "00000000:%02X:00.0", info->bus);
#endif
	return SUCCESS;
}

typedef struct { unsigned long long total, unused, used; } memory_1;
typedef struct { unsigned pid; unsigned long long memory; } process_1;

int nvmlDeviceGetMemoryInfo(const handle *device, memory_1 *memory)
{
	ASK(device);
	*memory = (memory_1){ 40960 * MIB, 40448 * MIB, 512 * MIB };
	return SUCCESS;
}

/* Writes the processes at steps of `size` bytes: each form begins as the first does. */
static int processes(const handle *device, unsigned *count, void *infos, size_t size)
{
	char name[16];
	const char *at = getenv("FAKE_NVML_PID");
	unsigned room = infos ? *count : 0, found = 0;
	long pid;
	snprintf(name, sizeof name, "%u", device->card);
	for (; next(&at, name, &pid); found++) {
		if (found >= room)
			continue;
		process_1 *process = (process_1 *)((char *)infos + found * size);
		memset(process, 0xff, size);
		*process = (process_1){ (unsigned)pid, (pid + 1) * MIB };
	}
	*count = found;
	return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses(const handle *device, unsigned *count, process_1 *infos)
{
	ASK(device);
	return processes(device, count, infos, sizeof(process_1));
}

int nvmlDeviceGetComputeMode(const handle *device, int *mode)
{
	ASK(device);
	*mode = (int)knob("FAKE_NVML_MODE", device, 0);
	return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(const handle *device, int *mode)
{
	ASK(device);
	*mode = (int)knob("FAKE_NVML_PERSISTENCE", device, 1);
	return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(const handle *device, int type, int counter, unsigned long long *errors)
{
	ASK(device);
	/* Only those that were not corrected (1) since the driver was loaded (0). */
	*errors = type == 1 && counter == 0 ? (unsigned long long)knob("FAKE_NVML_ECC", device, 0) : 4711;
	return SUCCESS;
}

#ifdef OLD

int nvmlDeviceGetPciInfo_v2(const handle *device, pci_info *info)
{
	ASK(device);
	return pci(device, info);
}

#else

int nvmlDeviceGetPciInfo_v3(const handle *device, pci_info *info)
{
	ASK(device);
	return pci(device, info);
}

typedef struct { unsigned version; unsigned long long total, reserved, unused, used; } memory_2;

int nvmlDeviceGetMemoryInfo_v2(const handle *device, memory_2 *memory)
{
	ASK(device);
	if (memory->version != (sizeof *memory | 2 << 24))
		return INVALID_ARGUMENT;
	*memory = (memory_2){ memory->version, 40960 * MIB, 128 * MIB, 40576 * MIB, 256 * MIB };
	return SUCCESS;
}

typedef struct { process_1 first; unsigned gpu_instance, compute_instance; } process_2;
typedef struct { process_2 second; unsigned long long protected; } process_3;

int nvmlDeviceGetComputeRunningProcesses_v2(const handle *device, unsigned *count, process_2 *infos)
{
	ASK(device);
	return processes(device, count, infos, sizeof(process_2));
}

/* As drivers 535.43 to 535.86 have it. */
int nvmlDeviceGetComputeRunningProcesses_v3(const handle *device, unsigned *count, process_3 *infos)
{
	ASK(device);
	return processes(device, count, infos, sizeof(process_3));
}

typedef struct {
	unsigned id, scope;
	long long time, latency;
	unsigned type;
	int status;
	union { unsigned number; unsigned long long large; } value;
} field;

int nvmlDeviceGetFieldValues(const handle *device, int count, field *fields)
{
	ASK(device);
	for (field *asked = fields; asked < fields + count; asked++) {
		const char *variable = asked->id == 144 ? "FAKE_NVML_REMAP_PENDING"
			: asked->id == 145 ? "FAKE_NVML_REMAP_FAILED"
			: asked->id == 230 ? "FAKE_NVML_RECOVERY" : NULL;
		asked->type = 1; /* an unsigned int */
		asked->status = variable ? SUCCESS : NOT_SUPPORTED;
		asked->value.number = variable ? (unsigned)knob(variable, device, 0) : 0;
	}
	return SUCCESS;
}

int nvmlDeviceGetMigMode(const handle *device, unsigned *current, unsigned *pending)
{
	ASK(device);
	if (knob("FAKE_NVML_MIG", device, NONE) == NONE)
		return NOT_SUPPORTED;
	*current = *pending = 1;
	return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(const handle *device, unsigned *count)
{
	ASK(device);
	*count = MOST_INSTANCES;
	return SUCCESS;
}

static handle instances[MOST_CARDS][MOST_INSTANCES];

/* Every second place is taken. */
int nvmlDeviceGetMigDeviceHandleByIndex(const handle *device, unsigned place, handle **instance)
{
	ASK(device);
	if (place % 2 || place / 2 >= knob("FAKE_NVML_MIG", device, 0))
		return NOT_FOUND;
	instances[device->card][place] = (handle){ device->card, (int)place };
	*instance = &instances[device->card][place];
	return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(const handle *instance, unsigned *id)
{
	ASK(instance);
	*id = 7 + (unsigned)instance->place;
	return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(const handle *instance, unsigned *id)
{
	ASK(instance);
	*id = 0;
	return SUCCESS;
}

typedef struct { unsigned processors, engines[5], slices[2]; unsigned long long memory; } attributes;

int nvmlDeviceGetAttributes_v2(const handle *instance, attributes *told)
{
	ASK(instance);
	*told = (attributes){ .processors = 14, .slices = { 1, 1 }, .memory = 4864 };
	return SUCCESS;
}

#endif
