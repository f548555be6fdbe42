(function () {
  "use strict";
  var config = {
    displaylogo: false,
    responsive: true,
    plotlyServerURL: "",
    showSendToCloud: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]
  };
  var boxes = document.querySelectorAll(".chart");
  boxes.forEach(function (box) {
    var figure = JSON.parse(document.getElementById(box.dataset.figure).textContent);
    Plotly.newPlot(box, figure.data, figure.layout, config);
  });
  // A browser still has the layout of the screen when it announces the print, so the width of a sheet is given.
  window.addEventListener("beforeprint", function () {
    boxes.forEach(function (box) { Plotly.relayout(box, { autosize: false, width: 690 }); });
  });
  window.addEventListener("afterprint", function () {
    boxes.forEach(function (box) { Plotly.relayout(box, { autosize: true, width: null }); });
  });
}());
