/* An allocator whose blocks end at a page that may not be touched, while it is on.
 *
 * A block is a page with its size, a page that may not be touched, its own pages, and another page
 * that may not be. It ends where its own pages end, but for the bytes of its alignment, which are
 * filled, and looked at when it is freed. A freed block is not touched again. It is for glibc, and
 * loaded by LD_PRELOAD.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { PAGE = 4096, LEAST = 256, FILL = 0xA5 };
static const size_t ROOM = (size_t)1 << 42;
static uintptr_t begin, end;
static _Atomic uintptr_t next;
static _Atomic int is_on;
static _Atomic long blocks;

static void fail(const char *why) {
  if (write(2, why, strlen(why)) < 0) _exit(3);
  abort();
}

void guard(int on) {
  if (on && !begin) {
    void *room = mmap(0, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) fail("guarded memory: no room\n");
    next = (uintptr_t)room;
    end = (uintptr_t)room + ROOM;
    begin = (uintptr_t)room;
  }
  is_on = on;
}

long guarded_blocks(void) { return blocks; }

static void allow(uintptr_t at, size_t size) {
  if (mprotect((void *)at, size, PROT_READ | PROT_WRITE)) fail("guarded memory: too many blocks\n");
}

static void *made(size_t size, size_t alignment) {
  size_t own = (size + PAGE - 1) / PAGE * PAGE;
  uintptr_t at = atomic_fetch_add(&next, own + 3 * PAGE), first = at + 2 * PAGE;
  if (at + own + 3 * PAGE > end) fail("guarded memory: used up\n");
  allow(at, PAGE);
  allow(first, own);
  *(size_t *)at = size;
  uintptr_t place = (first + own - size) & ~(uintptr_t)(alignment - 1);
  memset((void *)(place + size), FILL, first + own - place - size);
  blocks++;
  return (void *)place;
}

static int is_ours(void *block) {
  return begin && (uintptr_t)block >= begin && (uintptr_t)block < end;
}

static uintptr_t first_of(void *block) { return (uintptr_t)block / PAGE * PAGE; }
static size_t size_of(void *block) { return *(size_t *)(first_of(block) - 2 * PAGE); }

static void unmake(void *block) {
  size_t size = size_of(block), own = (size + PAGE - 1) / PAGE * PAGE;
  uintptr_t first = first_of(block);
  for (uintptr_t byte = (uintptr_t)block + size; byte < first + own; byte++)
    if (*(unsigned char *)byte != FILL) fail("guarded memory: written after the end of a block\n");
  void *whole = (void *)(first - 2 * PAGE);
  madvise(whole, own + 2 * PAGE, MADV_DONTNEED);
  mprotect(whole, own + 2 * PAGE, PROT_NONE);
}

static int guards(size_t size) { return is_on && size >= LEAST; }

void *malloc(size_t size) { return guards(size) ? made(size, 16) : __libc_malloc(size); }

void *calloc(size_t count, size_t size) {
  /* New pages are 0. */
  return guards(count * size) ? made(count * size, 16) : __libc_calloc(count, size);
}

void free(void *block) {
  if (is_ours(block))
    unmake(block);
  else
    __libc_free(block);
}

void *realloc(void *block, size_t size) {
  if (!is_ours(block)) return block ? __libc_realloc(block, size) : malloc(size);
  void *moved = malloc(size);
  size_t before = size_of(block);
  memcpy(moved, block, before < size ? before : size);
  unmake(block);
  return moved;
}

void *memalign(size_t alignment, size_t size) {
  if (!guards(size) || alignment > PAGE) return __libc_memalign(alignment, size);
  return made(size, alignment < 16 ? 16 : alignment);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block ? 0 : 12;
}
