/* Opened from a folder, a page may read nothing, and the theme asks for sitemap.xml all the same:
 * the browser would say so in red on every page. It has no use for it here. */
"use strict";
if (location.protocol === "file:") XMLHttpRequest.prototype.send = () => {};
