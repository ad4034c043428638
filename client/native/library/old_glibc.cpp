// What the C++ runtime, which is linked in, takes from a glibc newer than 2.17: defined here, so that the library loads
// with an older one too.
#include <pthread.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

#include <link.h>

#include <cstdint>

#if defined(__x86_64__)
#define MVPRUNE_FIRST_GLIBC "GLIBC_2.2.5"
#else
#define MVPRUNE_FIRST_GLIBC "GLIBC_2.17"
#endif
#define MVPRUNE_HIDDEN extern "C" __attribute__((visibility("hidden")))

// Since 2.32: whether the process has one thread, so that counters need not be atomic. False is always right.
MVPRUNE_HIDDEN char mvprune_is_single_threaded __asm__("__libc_single_threaded");
char mvprune_is_single_threaded = 0;

// Since 2.34 in another library.
extern "C" int mvprune_old_once(pthread_once_t* control, void (*routine)());
extern "C" int mvprune_old_key_create(pthread_key_t* key, void (*destructor)(void*));
__asm__(".symver mvprune_old_once, pthread_once@" MVPRUNE_FIRST_GLIBC);
__asm__(".symver mvprune_old_key_create, pthread_key_create@" MVPRUNE_FIRST_GLIBC);

MVPRUNE_HIDDEN int mvprune_once(pthread_once_t* control, void (*routine)()) __asm__("pthread_once");
int mvprune_once(pthread_once_t* control, void (*routine)()) { return mvprune_old_once(control, routine); }

MVPRUNE_HIDDEN int mvprune_key_create(pthread_key_t* key, void (*destructor)(void*)) __asm__("__pthread_key_create");
int mvprune_key_create(pthread_key_t* key, void (*destructor)(void*)) { return mvprune_old_key_create(key, destructor); }

// Since 2.35: where the frames of the code at an address are described, for the unwinder; glibc's struct dl_find_object.
struct MvpruneFound {
  unsigned long long flags;
  void *map_start, *map_end, *map, *eh_frame;
};

MVPRUNE_HIDDEN int mvprune_find_object(void* address, MvpruneFound* found) __asm__("_dl_find_object");

int mvprune_find_object(void* address, MvpruneFound* found) {
  struct Search {
    uintptr_t address;
    MvpruneFound* found;
  } search = {reinterpret_cast<uintptr_t>(address), found};
  const auto look = [](dl_phdr_info* object, size_t, void* context) {
    auto* const wanted = static_cast<Search*>(context);
    void* frames = nullptr;
    bool is_inside = false;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const auto& part = object->dlpi_phdr[i];
      const uintptr_t start = object->dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_GNU_EH_FRAME) frames = reinterpret_cast<void*>(start);
      if (part.p_type != PT_LOAD || wanted->address < start || wanted->address - start >= part.p_memsz) continue;
      is_inside = true;
      *wanted->found = {0, reinterpret_cast<void*>(start), reinterpret_cast<void*>(start + part.p_memsz), nullptr, nullptr};
    }
    wanted->found->eh_frame = frames;
    return is_inside && frames ? 1 : 0;
  };
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}

#endif
