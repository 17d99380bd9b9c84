// What the search says; Sphinx has it in Turkish without the number of results.
Documentation.addTranslations({
  locale: "tr",
  messages: {
    ", in ": ", ",
    "Hide Search Matches": "Arama eşleşmelerini gizle",
    "Preparing search...": "Arama hazırlanıyor…",
    "Search Results": "Arama sonuçları",
    Searching: "Aranıyor",
    "Search finished, found one page matching the search query.": [
      "Arama tamamlandı: bir sayfa bulundu.",
      "Arama tamamlandı: ${resultCount} sayfa bulundu.",
    ],
    "Your search did not match any documents. Please make sure that all words are spelled correctly and that you've selected enough categories.":
      "Bu kelimelerin hepsini içeren bir sayfa bulunamadı.",
  },
  plural_expr: "n > 1 ? 1 : 0",
});
