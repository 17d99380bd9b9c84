"""Subject: what a folder is taken for, and when it is loaded anew."""

import os

import pytest
import torch

import glasshead as gh
from glasshead.studio.background_jobs import NotThere
from glasshead.studio.subject import StudioSubject
from pretrained_folders import llama2c_files
from translated import translated
from written import written


def test_a_folder_of_llama2c_is_a_model_that_reads(tmp_path):
    subject = StudioSubject(llama2c_files(tmp_path / "model").parent)
    assert subject.kind == "model"
    reader = subject.reader()
    assert reader.context == 31
    assert [reader.token(token) for token in reader.encode(["abc aab"])[0]] == [
        " ",
        "abc",
        " a",
        "ab",
    ]


def test_each_folder_is_what_its_config_says(tmp_path):
    assert StudioSubject().kind is None
    assert StudioSubject(written(tmp_path / "writer").path).kind == "write"
    assert StudioSubject(translated(tmp_path / "translator").path).kind == "translate"
    x = torch.eye(3)
    gh.Attention().weights(x, x).save(tmp_path / "kept.safetensors")
    assert StudioSubject(tmp_path / "kept.safetensors").kind == "weights"


def test_a_folder_with_nothing_in_it_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no run: there is no config.json in it"):
        _ = StudioSubject(tmp_path).kind
    with pytest.raises(NotThere, match="is no folder: name one of a run"):
        _ = StudioSubject(tmp_path / "nowhere").kind


def test_a_model_is_loaded_anew_where_its_weights_were_written_anew(tmp_path):
    folder = written(tmp_path / "run")
    subject = StudioSubject(folder.path)
    first = subject.reader()
    assert subject.reader() is first
    os.utime(folder.weights, ns=(1, 1))
    assert subject.reader() is not first


def test_a_file_that_is_gone_and_a_run_that_does_not_translate_are_told(tmp_path):
    with pytest.raises(NotThere, match="kept.safetensors is not there: check its name"):
        _ = StudioSubject(tmp_path / "kept.safetensors").kind
    for subject in (StudioSubject(), StudioSubject(written(tmp_path / "writer").path)):
        with pytest.raises(NotThere, match="there is no translator here: start the studio with"):
            subject.translator()


def test_what_needs_a_model_is_refused_where_there_is_none():
    with pytest.raises(NotThere, match="there is no model here: start the studio with the folder"):
        StudioSubject().reader()
