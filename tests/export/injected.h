/* What a test asks a function of a fake library to return: "FUNCTION=STATUS" in a variable of the
 * environment; 0 otherwise. */
#include <stdlib.h>
#include <string.h>

static int injected(const char *variable, const char *function) {
    const char *text = getenv(variable);
    size_t length = strlen(function);
    if (text && strncmp(text, function, length) == 0 && text[length] == '=')
        return atoi(text + length + 1);
    return 0;
}
