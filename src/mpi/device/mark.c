/* An object without contents, which stands at the end of the list of loaded objects: see watch.rs. */
const char huddle_mark = 0;
