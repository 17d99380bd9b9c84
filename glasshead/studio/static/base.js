// What every view needs: bundled as one file, which compresses better than several.
import "./address.js";
import "./app.js";
import "./colors.js";
import "./controls.js";
import "./diverging.js";
import "./dom.js";
import "./map.js";
import "./marks.js";
import "./numbers.js";
import "./parts/walk.js";
import "./selection.js";
import "./source.js";
