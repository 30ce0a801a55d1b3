/* Places buffers that live during [lower, upper) and have a size at offsets below a capacity, so that no two that live
 * at the same time overlap: a depth-first search over canonical placements with inference per section of time, after
 * M. D. Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023.
 *
 * Arguments: the orders in which buffers are tried at equal offsets; the largest value of the first letter comes first,
 * then of the second ...: T the fullest section that the buffer is in, A its area, W how long it lives.
 * Standard input: number of buffers, number of sections, capacity, seconds; then for each buffer its first section, the
 * section after its last, its size, and how long it lives.
 * Standard output: "fits" and the offsets, "impossible" (proven), or "unknown" (the time is up).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NEVER INT64_MAX

static int buffers, sections;
static int64_t capacity, nodes_left, nodes_done;
static double seconds;
static int out_of_time, out_of_nodes;
static int *first, *after, *rank, *active, *active_start, *overlap, *overlap_start, *cuts, *dirty, stamp;
static int64_t *size, *width, *fullest, *low, *offset, *total, *least;
static const char *letters;

typedef struct { int index; int64_t before; } change;
static change *lows, *leasts;
static size_t low_count, least_count, low_room, least_room;

static void *room(size_t count, size_t each) {
    void *found = calloc(count ? count : 1, each);
    if (!found) exit(3);
    return found;
}

static void note(change **list, size_t *count, size_t *space, int index, int64_t before) {
    if (*count == *space) {
        *space = *space ? 2 * *space : 1024;
        *list = realloc(*list, *space * sizeof(change));
        if (!*list) exit(3);
    }
    (*list)[(*count)++] = (change){index, before};
}

static int place(int b, int from, int to) {
    /* Raises what lies above; returns whether each section can still hold what is left of it. */
    int64_t height = low[b] + size[b], at = low[b];
    stamp++;
    note(&lows, &low_count, &low_room, b, low[b]);
    offset[b] = low[b];
    low[b] = NEVER;
    for (int s = first[b]; s < after[b]; s++) { total[s] -= size[b]; dirty[s] = stamp; }
    for (int i = overlap_start[b]; i < overlap_start[b + 1]; i++) {
        int o = overlap[i];
        if (low[o] >= height) continue;
        note(&lows, &low_count, &low_room, o, low[o]);
        low[o] = height;
        for (int s = first[o]; s < after[o]; s++) dirty[s] = stamp;
    }
    for (int s = from; s < to; s++) {
        if (dirty[s] == stamp) {
            int64_t now = NEVER;
            for (int i = active_start[s]; i < active_start[s + 1]; i++)
                if (low[active[i]] < now) now = low[active[i]];
            if (now != least[s]) { note(&leasts, &least_count, &least_room, s, least[s]); least[s] = now; }
        }
        if (total[s] && (at > least[s] ? at : least[s]) + total[s] > capacity) return 0;
    }
    return 1;
}

static void take_back(int b, size_t low_mark, size_t least_mark) {
    while (low_count > low_mark) { low_count--; low[lows[low_count].index] = lows[low_count].before; }
    while (least_count > least_mark) { least_count--; least[leasts[least_count].index] = leasts[least_count].before; }
    for (int s = first[b]; s < after[b]; s++) total[s] += size[b];
    offset[b] = -1;
}

static int before(int a, int b) { return low[a] != low[b] ? low[a] < low[b] : rank[a] < rank[b]; }

static int search(const int *part, int count, int from, int to, int64_t at, int least_rank);

static int64_t weight(int b, char letter) {
    return letter == 'T' ? fullest[b] : letter == 'A' ? width[b] * size[b] : width[b];
}

static int compare(const void *one, const void *other) {
    int a = *(const int *)one, b = *(const int *)other;
    for (const char *letter = letters; *letter; letter++) {
        int64_t x = weight(a, *letter), y = weight(b, *letter);
        if (x != y) return x > y ? -1 : 1;
    }
    return a - b;
}

static int search_part(const int *part, int count, int from, int to) {
    /* Ranks follow from what is left to place in each section, so they differ from part to part. */
    int *old = room(2 * (size_t)count, sizeof(int)), *sorted = old + count, done;
    for (int i = 0; i < count; i++) {
        int b = part[i];
        old[i] = rank[b];
        sorted[i] = b;
        fullest[b] = 0;
        for (int s = first[b]; s < after[b]; s++) if (total[s] > fullest[b]) fullest[b] = total[s];
    }
    qsort(sorted, (size_t)count, sizeof(int), compare);
    for (int i = 0; i < count; i++) rank[sorted[i]] = i;
    done = search(part, count, from, to, -1, -1);
    if (!done) for (int i = 0; i < count; i++) rank[part[i]] = old[i];
    free(old);
    return done;
}

static int search_rest(int b, const int *part, int count, int from, int to) {
    int *rest = room(2 * (size_t)count, sizeof(int)), *some = rest + count, left = 0, done = 1, begin = from, split = 0;
    for (int i = 0; i < count; i++) if (part[i] != b) rest[left++] = part[i];
    for (int s = first[b] + 1; s < after[b]; s++) if (--cuts[s] == 0) split = 1;
    if (!split) {
        done = search(rest, left, from, to, offset[b], rank[b]);
    } else {
        for (int s = first[b] + 1; done && s <= after[b]; s++) {
            int end = s < after[b] ? s : to, few = 0;
            if (s < after[b] && cuts[s]) continue;
            for (int i = 0; i < left; i++) if (first[rest[i]] < end && after[rest[i]] > begin) some[few++] = rest[i];
            if (few) done = search_part(some, few, begin, end);
            begin = end;
        }
    }
    if (!done) for (int s = first[b] + 1; s < after[b]; s++) cuts[s]++;
    free(rest);
    return done;
}

static int search(const int *part, int count, int from, int to, int64_t at, int least_rank) {
    int64_t top = NEVER;
    int *order, few = 0, done = 0;
    if (!count) return 1;
    for (int i = 0; i < count; i++) if (low[part[i]] + size[part[i]] < top) top = low[part[i]] + size[part[i]];
    order = room((size_t)count, sizeof(int));
    for (int i = 0; i < count; i++) {
        int b = part[i], j;
        if (low[b] >= top || low[b] < at || (low[b] == at && rank[b] < least_rank)) continue;
        for (j = few++; j && before(b, order[j - 1]); j--) order[j] = order[j - 1];
        order[j] = b;
    }
    for (int i = 0; i < few && !done; i++) {
        size_t low_mark = low_count, least_mark = least_count;
        if (--nodes_left < 0) out_of_nodes = 1;
        if ((++nodes_done & 4095) == 0 && (double)clock() / CLOCKS_PER_SEC > seconds) out_of_time = 1;
        if (out_of_nodes || out_of_time) break;
        done = place(order[i], from, to) && search_rest(order[i], part, count, from, to);
        if (!done) take_back(order[i], low_mark, least_mark);
    }
    free(order);
    return done;
}

static int whole(void) {
    int *part = room((size_t)buffers, sizeof(int)), begin = 0, done = 1;
    for (int end = 1; done && end <= sections; end++) {
        int few = 0;
        if (end < sections && cuts[end]) continue;
        for (int b = 0; b < buffers; b++) if (first[b] < end && after[b] > begin) part[few++] = b;
        done = search_part(part, few, begin, end);
        begin = end;
    }
    free(part);
    return done;
}

static void reset(void) {
    /* Parts that were solved before another failed are taken back, too. */
    low_count = least_count = 0;
    memset(low, 0, (size_t)buffers * 8);
    memset(least, 0, (size_t)sections * 8);
    memset(total, 0, (size_t)sections * 8);
    memset(cuts, 0, (size_t)sections * 4);
    for (int b = 0; b < buffers; b++)
        for (int s = first[b]; s < after[b]; s++) {
            total[s] += size[b];
            if (s > first[b]) cuts[s]++;
        }
}

static int64_t number(void) {
    long long found;
    if (scanf("%lld", &found) != 1) exit(2);
    return found;
}

int main(int count, char **orders) {
    int done = 0;
    int64_t limit;
    buffers = (int)number(); sections = (int)number(); capacity = number(); seconds = (double)number();
    size_t n = (size_t)buffers, m = (size_t)sections + 1;
    rank = room(n, 4); width = room(n, 8); fullest = room(n, 8);
    first = room(n, 4); after = room(n, 4); size = room(n, 8); low = room(n, 8); offset = room(n, 8);
    total = room(m, 8); least = room(m, 8); cuts = room(m, 4); dirty = room(m, 4);
    active_start = room(m, 4); overlap_start = room(n + 1, 4);
    for (int b = 0; b < buffers; b++) {
        first[b] = (int)number(); after[b] = (int)number(); size[b] = number(); width[b] = number();
    }
    reset();
    for (int b = 0; b < buffers; b++) for (int s = first[b]; s < after[b]; s++) active_start[s + 1]++;
    for (int s = 0; s < sections; s++) {
        active_start[s + 1] += active_start[s];
        if (total[s] > capacity) { puts("impossible"); return 0; }
    }
    active = room((size_t)active_start[sections], 4);
    for (int b = 0; b < buffers; b++) for (int s = first[b]; s < after[b]; s++) active[active_start[s] + dirty[s]++] = b;
    for (int turn = 0; turn < 2; turn++) {
        size_t count = 0;
        for (int b = 0; b < buffers; b++) {
            for (int o = 0; o < buffers; o++) if (o != b && first[o] < after[b] && first[b] < after[o]) {
                if (turn) overlap[count] = o;
                count++;
            }
            overlap_start[b + 1] = (int)count;
        }
        if (!turn) overlap = room(count, 4);
    }
    memset(dirty, 0, m * 4);
    for (limit = 2 * buffers; !done; limit *= 2) {
        for (int o = 1; o < count && !done; o++) {
            letters = orders[o];
            nodes_left = limit; out_of_nodes = 0;
            done = whole();
            if (out_of_time) { puts("unknown"); return 0; }
            if (!done && !out_of_nodes) { puts("impossible"); return 0; }
            if (!done) reset();
        }
    }
    puts("fits");
    for (int b = 0; b < buffers; b++) printf("%lld\n", (long long)offset[b]);
    return 0;
}
