for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(button.previousElementSibling.querySelector("code"));
    if (document.execCommand("copy")) button.textContent = button.dataset.copied;
  });
}
