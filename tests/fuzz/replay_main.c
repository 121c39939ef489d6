/* Runs a fuzz target over its corpus: each file below the directory given, once. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        return -1;
    }
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    /* exact size: the sanitizer sees a read one past the end */
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    size_t got = data == NULL ? 0 : fread(data, 1, (size_t)size, f);
    fclose(f);
    if (data == NULL || got != (size_t)size) {
        fprintf(stderr, "%s: short read\n", path);
        free(data);
        return -1;
    }
    LLVMFuzzerTestOneInput(data, got);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int files = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS_DIR\n", argv[0]);
        return 2;
    }
    DIR *dir = opendir(argv[1]);
    if (dir == NULL) {
        perror(argv[1]);
        return 1;
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        if (replay_file(path) != 0)
            return 1;
        files++;
    }
    closedir(dir);
    printf("%d corpus files replayed\n", files);
    return files > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
