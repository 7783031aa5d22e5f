// Jobs on several nodes measure the network between them in MPI_Init and keep the result for later jobs; jobs on one
// node do not.
//
//   network kept|none
//
// What huddle keeps goes to a directory that all processes name alike, by the process that started them all.
#include "check.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

// Whether the directory has a measured network, whose numbers must be plausible; removes the directory.
static bool take_network(const char *directory) {
    bool is_there = false;
    DIR *entries = opendir(directory);
    CHECK(entries != NULL);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char path[512], line[1024] = "";
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (!strncmp(entry->d_name, "network-", 8)) {
            is_there = true;
            double latency, overhead, gap, per_byte;
            FILE *file = fopen(path, "r");
            CHECK(file != NULL && fgets(line, sizeof line, file) != NULL && strstr(line, "virtual nodes") != NULL);
            CHECK(fscanf(file, "%lf %lf %lf %lf", &latency, &overhead, &gap, &per_byte) == 4);
            CHECK(latency >= 0 && overhead > 0 && gap >= overhead && per_byte >= 0);
            CHECK(2 * overhead + latency < 2e6 && per_byte < 1e3);
            fclose(file);
        }
        if (entry->d_name[0] != '.') unlink(path);
    }
    closedir(entries);
    rmdir(directory);
    return is_there;
}

int main(int argc, char **argv) {
    char directory[64];
    snprintf(directory, sizeof directory, "/tmp/huddle-network-%d", (int)getppid());
    mkdir(directory, 0700);
    setenv("HUDDLE_CACHE", directory, 1);
    MPI_Init(&argc, &argv);
    look_around();
    CHECK(argc == 2);
    if (world_rank == 0) CHECK(take_network(directory) == !strcmp(argv[1], "kept"));
    say_ok("network");
    MPI_Finalize();
    return 0;
}
