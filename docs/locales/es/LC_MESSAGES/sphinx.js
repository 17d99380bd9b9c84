// What the search says; Sphinx has it in Spanish without the number of results.
Documentation.addTranslations({
  locale: "es",
  messages: {
    ", in ": ", en ",
    "Hide Search Matches": "Ocultar las coincidencias",
    "Preparing search...": "Preparando la búsqueda…",
    "Search Results": "Resultados de la búsqueda",
    Searching: "Buscando",
    "Search finished, found one page matching the search query.": [
      "Se encontró una página.",
      "Se encontraron ${resultCount} páginas.",
    ],
    "Your search did not match any documents. Please make sure that all words are spelled correctly and that you've selected enough categories.":
      "Ninguna página contiene todas estas palabras.",
  },
  plural_expr: "n === 1 ? 0 : 1",
});
