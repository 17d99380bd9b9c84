// What the search says; Sphinx has it in Traditional Chinese without the number of results.
Documentation.addTranslations({
  locale: "zh_Hant_TW",
  messages: {
    ", in ": "，於 ",
    "Hide Search Matches": "隱藏符合搜尋的標示",
    "Preparing search...": "正在準備搜尋……",
    "Search Results": "搜尋結果",
    Searching: "搜尋中",
    "Search finished, found one page matching the search query.": [
      "搜尋完成，共找到 ${resultCount} 頁。",
    ],
    "Your search did not match any documents. Please make sure that all words are spelled correctly and that you've selected enough categories.":
      "找不到包含所有這些字詞的頁面。",
  },
  plural_expr: "0",
});
